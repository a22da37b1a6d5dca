"""jemalloc's integration tests of the standard functions (crate tikv-jemalloc-sys)."""

from harness import fetch
from harness.model import Case

NAME = "jemalloc"
TITLE = "jemalloc"
SOURCE = "crate `tikv-jemalloc-sys`"

FLAGS = ("-D_GNU_SOURCE", "-I{shim}/jemalloc")


def _case(name, checks, **more):
    return Case(NAME, name, checks, source=f"integration/{name}.c", flags=FLAGS, **more)


CASES = [
    _case("malloc", "`malloc(0)` has usable bytes"),
    _case("aligned_alloc",
          "`EINVAL` for alignments that are no power of two, `ENOMEM` for absurd requests, "
          "sizes to 24 MiB at alignments to 8 MiB",
          system_fails=("test_alignment_errors",),
          note="the system's `aligned_alloc` accepts any alignment, as it did before C17"),
    _case("posix_memalign",
          "the same for `posix_memalign`, alignments below a pointer's size refused"),
]

LEFT_OUT = (("mallocx, rallocx, xallocx, sdallocx, arena, extent, tcache, overflow",
             "functions or figures that only jemalloc has"),)


def fetch_into(folder):
    root, version = fetch.crate("tikv-jemalloc-sys", folder)
    return root / "jemalloc/test", version
