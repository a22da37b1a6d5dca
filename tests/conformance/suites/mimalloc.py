"""mimalloc's API and stress tests (Debian's source package; the crate leaves its tests out)."""

from harness import fetch
from harness.model import Case

NAME = "mimalloc"
TITLE = "mimalloc"
SOURCE = "Debian source package `mimalloc`"

CASES = [
    Case(
        NAME,
        "test-api",
        "26 checks: zero sizes, overflow, `EINVAL`, alignments to 128 MiB, little slack",
        source="test/test-api.c",
        flags=("-D_GNU_SOURCE", "-I{shim}/mimalloc"),
        system_fails=("calloc0",),
        note="the system's malloc has 24 usable bytes in its smallest block, one check wants 16",
    ),
    Case(
        NAME,
        "test-stress",
        "threads that come and go pass blocks on; contents verified at each free",
        source="test/test-stress.c",
        flags=("-DUSE_STD_MALLOC",),
        arguments=("4", "25", "20"),
        full_arguments=("32", "50", "50"),
    ),
]

LEFT_OUT = (
    ("8 of the 34 checks of test-api",
     "its heaps, C++ adaptor and alignment at an offset; and `realloc-sizezero`, which contradicts "
     "the C library's tst-realloc"),
    ("test-api-fill, test-wrong, main*", "its debug fill patterns and deliberate misuse"),
)


def fetch_into(folder):
    archive, version = fetch.debian_source("mimalloc", folder)
    wanted = ["test/test-api.c", "test/test-stress.c"]
    return fetch.unpack(archive.parent, archive.name, wanted, folder), version
