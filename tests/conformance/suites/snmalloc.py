"""snmalloc's tests that use nothing but its test library's interface (crate snmalloc-sys)."""

from harness import fetch
from harness.model import Case

NAME = "snmalloc"
TITLE = "snmalloc"
SOURCE = "crate `snmalloc-sys`"

FLAGS = ("-std=c++20", "-I{suite}")


def _case(kind, name, file, checks, **more):
    return Case(
        NAME,
        f"{kind}-{name}",
        checks,
        source=f"test/{kind}/{name}/{file}.cc",
        extra_sources=("shim/snmalloc/testlib.cc",),
        flags=FLAGS,
        **more,
    )


SMOKE = ("--smoke",)

CASES = [
    _case("func", "memory", "memory",
          "no block given out twice, zeroing to 16 MiB, frees by another thread's heap, "
          "1 to 64 MiB consolidated again",
          note="questions about interior pointers have no standard function and ask nothing"),
    _case("func", "first_operation", "first_operation",
          "each call, at each of 180 sizes, as the first thing that a thread does"),
    _case("func", "teardown", "teardown",
          "as above after a first allocation",
          note="early teardown of a thread's cache has no standard function and does nothing"),
    _case("perf", "singlethread", "singlethread",
          "no block given out twice, 16 B to 128 KiB",
          arguments=SMOKE, full_arguments=()),
    _case("perf", "contention", "contention",
          "8, 4, 2 and 1 threads exchange blocks through shared slots",
          arguments=SMOKE, full_arguments=()),
    _case("perf", "large_alloc", "large_alloc",
          "800 KiB blocks in cycles and batches",
          arguments=SMOKE, full_arguments=()),
    _case("perf", "lotsofthreads", "lotsofthread",
          "eight threads allocate to 2 MiB, a ninth frees everything"),
    _case("perf", "startup", "startup", "all cores make their first allocation at once"),
    _case("perf", "post_teardown", "post-teardown",
          "262,144 blocks freed in order, twice",
          note="early teardown of a thread's cache has no standard function and does nothing"),
]

LEFT_OUT = (
    ("func/malloc, sizeclass, pagemap and the like", "its size classes and internals"),
    ("func/multi_atexit, multi_threadatexit", "override malloc themselves"),
)


def fetch_into(folder):
    root, version = fetch.crate("snmalloc-sys", folder)
    return root / "upstream/src", version
