"""stress-ng's malloc stressor with verification (Debian package stress-ng)."""

from harness import fetch
from harness.model import Case

NAME = "stress-ng"
TITLE = "stress-ng"
SOURCE = "Debian package `stress-ng`"


def _case(name, checks, *options, ops, full_ops, **more):
    common = ("--verify", "--timeout", "60", *options)
    return Case(
        NAME,
        name,
        checks,
        command="stress-ng",
        arguments=(*common, "--malloc-ops", str(ops)),
        full_arguments=(*common, "--malloc-ops", str(full_ops)),
        must_print="successful run completed",
        **more,
    )


CASES = [
    _case("malloc", "two processes: random `malloc`, `calloc`, `realloc`, contents verified",
          "--malloc", "2", "--malloc-bytes", "1m", ops=150_000, full_ops=200_000),
    _case("malloc-threads", "the same with two more threads in each process",
          "--malloc", "1", "--malloc-bytes", "64k", "--malloc-pthreads", "2",
          ops=250_000, full_ops=400_000),
]


def fetch_into(folder):
    return fetch.program("stress-ng", "stress-ng", folder)
