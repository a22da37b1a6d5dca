"""The allocators that the programs of this folder run on: each with its library."""
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
ALLOCATORS = {"glibc": None, "loam": ROOT / "build/libloam.so",
              "jemalloc": LIBRARIES / "libjemalloc.so.2",
              "mimalloc": LIBRARIES / "libmimalloc.so.2.0",
              "tcmalloc": LIBRARIES / "libtcmalloc_minimal.so.4"}
