// Included before everything else in microsoft/library.cpp: what Wine's headers of the C run-time
// and of Windows lack, and Microsoft's have. Only the declarations count: loam.dll calls none of
// the mathematical functions.
#pragma once

#define PERF_COUNTER_LARGE_RAWCOUNT 0x00010100
#define PERF_COUNTER_BULK_COUNT 0x10410500
// Wine's header defines a function of this name, which clang has itself.
#define _InterlockedCompareExchange128 wines_compare_exchange_128

struct timespec {
  long long tv_sec;
  long tv_nsec;
};

extern "C" {

__declspec(dllimport) void* __stdcall AddVectoredContinueHandler(
    unsigned long, long(__stdcall*)(struct _EXCEPTION_POINTERS*));

// A program that computes with fractions refers to it; it is the C run-time's, and mingw-w64's has
// none.
int _fltused = 1;

// libc++'s <math.h> names all of them.
#define LOAM_OF_ONE(name) long double name##l(long double);
#define LOAM_OF_TWO(name) long double name##l(long double, long double);
LOAM_OF_ONE(acos)
LOAM_OF_ONE(acosh) LOAM_OF_ONE(asin) LOAM_OF_ONE(asinh) LOAM_OF_ONE(atan) LOAM_OF_ONE(atanh)
    LOAM_OF_ONE(cbrt) LOAM_OF_ONE(ceil) LOAM_OF_ONE(cos) LOAM_OF_ONE(cosh) LOAM_OF_ONE(erf)
        LOAM_OF_ONE(erfc) LOAM_OF_ONE(exp) LOAM_OF_ONE(exp2) LOAM_OF_ONE(expm1) LOAM_OF_ONE(fabs)
            LOAM_OF_ONE(floor) LOAM_OF_ONE(lgamma) LOAM_OF_ONE(log) LOAM_OF_ONE(log10)
                LOAM_OF_ONE(log1p) LOAM_OF_ONE(log2) LOAM_OF_ONE(logb) LOAM_OF_ONE(nearbyint)
                    LOAM_OF_ONE(sin) LOAM_OF_ONE(sinh) LOAM_OF_ONE(sqrt) LOAM_OF_ONE(tan)
                        LOAM_OF_ONE(tanh) LOAM_OF_ONE(tgamma) LOAM_OF_TWO(atan2) LOAM_OF_TWO(fdim)
                            LOAM_OF_TWO(fmax) LOAM_OF_TWO(fmin) LOAM_OF_TWO(fmod) LOAM_OF_TWO(hypot)
                                LOAM_OF_TWO(nextafter) LOAM_OF_TWO(nexttoward) LOAM_OF_TWO(pow)
                                    LOAM_OF_TWO(remainder)
#undef LOAM_OF_ONE
#undef LOAM_OF_TWO
                                        float erfcf(float);
float nexttowardf(float, long double);
long double frexpl(long double, int*);
int ilogbl(long double);
long double ldexpl(long double, int);
long double modfl(long double, long double*);
long double remquol(long double, long double, int*);
long double scalblnl(long double, long);
long double scalbnl(long double, int);

}  // extern "C"
