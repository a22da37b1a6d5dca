#include "mimalloc.h"
