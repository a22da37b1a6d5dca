// All forms of operator new and delete, by their mangled names, because the recorder is C.
#pragma once

// Looks up the next definitions, if there is a C++ library so far.
void operators_find(void);
