"""Errors that end a benchmark early, each with a message for the user."""


class UsageError(Exception):
    """The command line names something that does not exist; exit 2."""


class SetupError(Exception):
    """Something that the benchmark needs is missing; the message says how to get it; exit 2."""


def not_built(path):
    """The message when a program, or the library, is missing."""
    return f"{path} does not exist; `make bench-build` makes it"
