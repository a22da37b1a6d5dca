"""gnulib's tests of the allocation functions (Debian package gnulib)."""

from harness import fetch
from harness.model import Case

NAME = "gnulib"
TITLE = "gnulib"
SOURCE = "Debian package `gnulib`"
FOLDER = "usr/share/gnulib/tests"

FLAGS = (
    "-DHAVE_ALIGNED_ALLOC=1",
    "-DHAVE_MEMALIGN=1",
    "-DHAVE_POSIX_MEMALIGN=1",
    "-D_GL_UNUSED=__attribute__((unused))",
    "-I{shim}/gnulib",
    "-I{suite}",
)


def _case(name, checks, **more):
    return Case(NAME, name, checks, source=f"{name}.c", flags=FLAGS, **more)


CASES = [
    _case("test-malloc-gnu", "`malloc(0)` is not null; sizes above `PTRDIFF_MAX` fail, `ENOMEM`"),
    _case("test-calloc-gnu", "`calloc(0, 0)` is not null; every product that overflows fails"),
    _case("test-realloc-gnu", "`realloc(NULL, 0)` is not null; too large fails, block untouched"),
    _case("test-reallocarray", "every product that overflows fails; zero sizes do not crash"),
    _case("test-free", "`free` keeps `errno`: small, large, and with no mapping left to split"),
    _case("test-aligned_alloc", "alignments 2 to 64 for 17 sizes, each block written whole"),
    _case("test-memalign", "alignments 2 to 64 for 17 sizes, each block written whole"),
    _case("test-posix_memalign", "alignments 8 to 64 for 17 sizes, each block written whole"),
]


def fetch_into(folder):
    """The folder with the tests' sources, and the fetched version."""
    root, version = fetch.debian_package("gnulib", folder)
    return root / FOLDER, version
