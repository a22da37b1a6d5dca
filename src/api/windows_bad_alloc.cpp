// Windows: the functions of the C++ run-time that operator new needs. The run-time is linked
// statically.
#include <new>

#include "api/operators.h"

void loam::operators::throw_bad_alloc(const void*) { throw std::bad_alloc(); }
std::new_handler loam::operators::new_handler(const void*) { return std::get_new_handler(); }
