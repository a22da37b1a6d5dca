"""Loam, a low-fragmentation heap, and the program `loam`, for any program on this machine.

    loam run -- python app.py          or: python -m loam_heap run -- python app.py
    loam doctor PID

`library()` is the path of the heap for an LD_PRELOAD of your own.
"""
from pathlib import Path

__all__ = ["__version__", "library", "program"]
__version__ = "@VERSION@"

# As the environment was named: a link without a blank may lead to one that has some, which
# LD_PRELOAD can not carry.
_PREFIX = Path(__file__).absolute().parent / "prefix"


def library() -> str:
    """Path of libloam.so."""
    return str(_PREFIX / "lib" / "libloam.so")


def program() -> str:
    """Path of the program `loam`."""
    return str(_PREFIX / "bin" / "loam")
