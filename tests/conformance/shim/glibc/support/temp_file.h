#include "../glibc_support.h"
