#!/usr/bin/env python3
"""Compares the preprocessor of the `tokens` experiment with the compiler's: same source, same
tokens.

It predefines the macros of one GCC, so the comparison needs that one. With another one the test is
skipped (status 77).
"""

import argparse
import itertools
import subprocess
import sys

GCC = "12"

# Macros: the examples of the C standard (6.10.3.5), and typical uses in system headers.
RESCANNING = r"""
#define x 3
#define f(a) f(x * (a))
#undef x
#define x 2
#define g f
#define z z[0]
#define h g(~
#define m(a) a(w)
#define w 0,1
#define t(a) a
#define p() int
#define q(x) x
#define r(x,y) x ## y
#define str(x) # x
f(y+1) + f(f(z)) % t(t(g)(0) + t)(1);
g(x+(3,4)-w) | h 5) & m
 (f)^m(m);
p() i[q()] = { q(1), r(2,3), r(4,), r(,5), r(,) };
char c[2][6] = { str(hello), str() };
"""
OPERATORS = r"""
#define str(s) # s
#define xstr(s) str(s)
#define debug(s, t) printf("x" # s "= %d, x" # t "= %s", x ## s, x ## t)
#define INCFILE(n) vers ## n
#define glue(a, b) a ## b
#define xglue(a, b) glue(a, b)
#define HIGHLOW "hello"
#define LOW LOW ", world"
debug(1, 2);
fputs(str(strncmp("abc\0d", "abc", '\4') // this goes away
 == 0) str(: @\n), s);
xstr(INCFILE(2).h)
glue(HIGH, LOW);
xglue(HIGH, LOW)
#define hash_hash # ## #
#define mkstr(a) # a
#define in_between(a) mkstr(a)
#define join(c, d) in_between(c hash_hash d)
char p2[] = join(x, y);
#define T(x,y,z) x ## y ## z
int j[] = { T(1,2,3), T(,4,5), T(6,,7), T(8,9,), T(10,,), T(,11,), T(,,12), T(,,) };
#define debug2(...) fprintf(stderr, __VA_ARGS__)
#define showlist(...) puts(#__VA_ARGS__)
#define report(test, ...) ((test)?puts(#test): printf(__VA_ARGS__))
debug2("Flag"); debug2("X = %d\n", x);
showlist(The first, second, and third items.);
report(x>y, "x is %d but y is %d", x, y);
#define gnu(format, args...) log(format, ## args)
#define gnu2(format, ...) log(format, ##__VA_ARGS__)
gnu("a") gnu("a", 1, x) gnu2("b") gnu2("b", 2)
"""

CONDITIONS = r"""
#if defined(NOT_THERE) || !defined __STDC__
no1
#elif (1 + 2 * 3 == 7) && (0x10u >> 2) == 4 && 'a' == 97 && -1 < 0 && !(-1 < 0u)
yes1
#else
no2
#endif
#if 0
#if 1
no3 don't mind "the quote
#endif
# else /* a comment
over two lines */
yes2
#endif
#ifndef NOT_THERE
#define TEN 10
#if TEN > 9 ? TEN == 10 : 0
yes3
#endif
#endif
#define UNDEFINED_CALL(a) 0
#if __has_include(<stdio.h>) && !__has_include(<no/such.h>) && UNDEFINED_CALL(1) == 0
yes4
#endif
a line that goes \
on /* and comment */ and on // to the end
R"(raw "string" // kept)" u8"text" L'c' 1'000'000 0x1p-3 .5e+10 a<=>b x->*y
"""

HEADERS = {
    "c++": "algorithm array bitset chrono deque fstream functional future iostream iterator list "
           "locale map memory mutex optional queue ranges regex set span sstream string thread "
           "tuple unordered_map utility variant vector".split(),
    "c": "arpa/inet.h ctype.h dirent.h errno.h fcntl.h inttypes.h limits.h locale.h math.h netdb.h "
         "pthread.h regex.h sched.h signal.h stdatomic.h stddef.h stdio.h stdlib.h string.h "
         "sys/epoll.h sys/mman.h sys/socket.h sys/stat.h time.h unistd.h wchar.h linux/types.h "
         "linux/input.h".split(),
}


def run(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[:2000]}")
    return done.stdout


def compare(what, language, source, program, compiler):
    standard = "-std=gnu++20" if language == "c++" else "-std=gnu17"
    compiled = run([compiler, "-x", language, standard, "-D_GNU_SOURCE", "-E", "-P", "-"], source)
    # The compiler keeps pragmas in its output. Our preprocessor does not count them as tokens.
    kept = "\n".join(l for l in compiled.splitlines() if not l.lstrip().startswith("#pragma")
                     and not l.lstrip().startswith("# pragma"))
    expected = run([program, "split"], kept).splitlines()
    found = run([program, language], source).splitlines()
    for i, (a, b) in enumerate(itertools.zip_longest(expected, found)):
        if a != b:
            before = " ".join(expected[max(0, i - 10):i])
            sys.exit(f"{what}: token {i} differs, after `{before}`:\n"
                     f"  compiler {' '.join(expected[i:i + 10])}\n"
                     f"  ours     {' '.join(found[i:i + 10])}")
    print(f"{what}: {len(found)} tokens, the same")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--compiler", required=True)
    a = parser.parse_args()
    version = subprocess.run([a.compiler, "-dumpversion"], capture_output=True, text=True)
    is_gcc = "Free Software Foundation" in subprocess.run(
        [a.compiler, "--version"], capture_output=True, text=True).stdout
    if not is_gcc or version.stdout.strip().split(".")[0] != GCC:
        print(f"skipped: the compiler is not GCC {GCC}, whose macros the preprocessor predefines")
        sys.exit(77)
    for language in ("c", "c++"):
        compare(f"{language} rescanning", language, RESCANNING, a.program, a.compiler)
        compare(f"{language} operators", language, OPERATORS, a.program, a.compiler)
        if language == "c++":  # raw strings and separators are not C17's
            compare("conditions", language, CONDITIONS, a.program, a.compiler)
        for header in HEADERS[language]:
            compare(header, language, f"#include <{header}>\n", a.program, a.compiler)
        everything = "".join(f"#include <{h}>\n" for h in HEADERS[language])
        compare(f"all of {language}", language, everything, a.program, a.compiler)


main()
