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
long double acosl(long double), acoshl(long double), asinl(long double), asinhl(long double);
long double atanl(long double), atanhl(long double), cbrtl(long double), ceill(long double);
long double cosl(long double), coshl(long double), erfl(long double), erfcl(long double);
long double expl(long double), exp2l(long double), expm1l(long double), fabsl(long double);
long double floorl(long double), lgammal(long double), logl(long double), log10l(long double);
long double log1pl(long double), log2l(long double), logbl(long double), nearbyintl(long double);
long double sinl(long double), sinhl(long double), sqrtl(long double), tanl(long double);
long double tanhl(long double), tgammal(long double);
long double atan2l(long double, long double), fdiml(long double, long double);
long double fmaxl(long double, long double), fminl(long double, long double);
long double fmodl(long double, long double), hypotl(long double, long double);
long double nextafterl(long double, long double), nexttowardl(long double, long double);
long double powl(long double, long double), remainderl(long double, long double);
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
