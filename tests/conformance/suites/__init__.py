"""The suites: which tests of other projects are used, and why the rest are not."""

from . import gnulib, jemalloc, libc, mimalloc, snmalloc, stress_ng

ALL = {
    suite.NAME: suite for suite in (gnulib, libc, mimalloc, snmalloc, jemalloc, stress_ng)
}


def cases():
    """Every case of every suite, in the order of the table."""
    return [case for suite in ALL.values() for case in suite.CASES]
