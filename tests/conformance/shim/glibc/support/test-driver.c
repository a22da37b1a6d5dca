#include "../glibc_main.h"
