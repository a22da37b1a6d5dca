"""The suites: the tests of other projects that are used, and the reasons for leaving out the
rest."""

from . import gnulib, jemalloc, libc, mimalloc, snmalloc, stress_ng

ALL = {
    suite.NAME: suite for suite in (gnulib, libc, mimalloc, snmalloc, jemalloc, stress_ng)
}


def cases():
    """Every case of every suite, in the order of the table."""
    return [case for suite in ALL.values() for case in suite.CASES]
