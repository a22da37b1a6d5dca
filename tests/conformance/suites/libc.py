"""The C library's tests of allocation that hold for any malloc (Debian package glibc-source)."""

from harness import fetch
from harness.model import Case

NAME = "glibc"
TITLE = "The C library (glibc)"
SOURCE = "Debian package `glibc-source`"

FLAGS = ("-D_GNU_SOURCE", "-I{shim}/glibc", "-I{shim}/glibc/support")

QUALITY = "only the C library's own malloc promises it"


def _case(name, checks, **more):
    return Case(NAME, name, checks, source=f"malloc/{name}.c", flags=FLAGS, **more)


CASES = [
    _case("tst-malloc", "`malloc(-1)` fails, `ENOMEM`; `realloc(p, 0)` frees and gives null"),
    _case("tst-calloc", "zeroing of re-used blocks, overflow, random sizes"),
    _case("tst-realloc", "contents kept, growth from null, zero sizes, failure keeps the block"),
    _case("tst-reallocarray", "overflow, contents kept while growing and shrinking"),
    _case("tst-memalign", "alignment, `ENOMEM` for absurd sizes and alignments, zero sizes"),
    _case("tst-posix_memalign", "alignment, `EINVAL`, `ENOMEM`, zero sizes"),
    _case("tst-valloc", "page alignment, `ENOMEM` for absurd sizes, zero sizes"),
    _case("tst-pvalloc", "page alignment, `ENOMEM` for absurd sizes, zero sizes"),
    _case("tst-mallocalign1", "alignment of `max_align_t` from `malloc` and after `realloc`"),
    _case("tst-malloc-too-large", "each function fails with `ENOMEM` above `PTRDIFF_MAX`"),
    _case("tst-free-errno", "`free` keeps `errno` when the kernel refuses to unmap"),
    _case("tst-malloc-thread-exit", "threads that exit while others allocate"),
    _case(
        "tst-malloc-thread-fail",
        "nine threads exhaust 200 MiB of address space through every function, then free all",
    ),
    _case("tst-malloc-fork-deadlock", "`fork`, `getline` and `fflush(NULL)` in many threads"),
    _case("tst-mallocfork", "`fork` after a signal handler was set up"),
    _case("tst-obstack", "obstacks: alignment of objects, freed whole"),
    _case("mallocbug", "blocks of 4 MiB among small ones do not overlap", must_print="PASS:"),
    _case("tst-trim1", "`malloc_trim` with live blocks, and allocation after it"),
    _case("tst-mallinfo2", "`mallinfo2().uordblks` grows by what was allocated"),
    _case("tst-malloc_info", "`malloc_info` with four threads holding 128 MiB each"),
    _case("tst-mallopt", "`mallopt` accepts each documented parameter"),
    _case(
        "tst-malloc-tcache-leak",
        "`mallinfo().uordblks` after 100,000 threads: caches of dead threads do not leak",
        shorten=(("int threads = 100000;", "int threads = 30000;"),),
        note="short form: 30,000 threads",
    ),
    _case(
        "tst-mallocfork2",
        "`fork` in a signal handler that interrupts `malloc`, `free` and `fork`",
        shorten=(("iterations = 10000", "iterations = 3000"),),
        gates=False,
        note=f"{QUALITY}; short form: 3,000 rounds",
    ),
    _case(
        "tst-mallocfork3",
        "`_Fork` in a signal handler of a process with threads",
        shorten=(("iterations = 10000", "iterations = 3000"),),
        gates=False,
        note=f"{QUALITY}; short form: 3,000 rounds",
    ),
]

LEFT_OUT = (
    ("tst-malloc-usable, tst-malloc-usable-tunables", "expects the C library's exact slack"),
    ("tst-tcfree1 to 3, tst-safe-linking, tst-malloc-check, tst-mallocstate, tst-mxfast",
     "its internal lists, checks and saved state"),
    ("tst-malloc-backtrace, tst-malloc-stats-cancellation, tst-mtrace", "its diagnostics"),
    ("tst-interpose-*, tst-compathooks-*", "bring a malloc of their own"),
    ("tst-dynarray*, tst-scratch_buffer, tst-alloc_buffer", "internal helpers, not malloc"),
)


def fetch_into(folder):
    root, version = fetch.debian_package("glibc-source", folder)
    wanted = [f"malloc/{case.name}.c" for case in CASES]
    return fetch.unpack(root / "usr/src/glibc", "glibc-*.tar.xz", wanted, folder), version
