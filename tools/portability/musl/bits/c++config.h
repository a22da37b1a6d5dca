// Lets musl use the headers of a libstdc++ that was configured for the GNU C library. It undefines
// what that configuration found there and musl lacks. Only headers are used; nothing of libstdc++
// is linked.
#include_next <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
#define __locale_t locale_t
