"""What ends a benchmark early, with a message for the person who started it."""


class UsageError(Exception):
    """The command line asks for something that does not exist; exit 2."""


class SetupError(Exception):
    """Something that the benchmark needs is missing; the message says how to get it; exit 2."""


def not_built(path):
    """What to say where a program, or the library, is not there."""
    return f"{path} does not exist; `make bench-build` makes it"
