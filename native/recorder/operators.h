// All forms of operator new and delete, by their mangled names, because the recorder is C.
#pragma once

// Looks up the next definitions, if a C++ library is loaded already.
void operators_find(void);
