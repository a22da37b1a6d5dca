"""Tests the harness: it must notice a program that Loam does not serve, one that fails, one that
hangs, and outputs that differ."""
from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Callable

from harness import Failure, Side, expect_equal, run


def expect_failure(what: str, words: str, action: Callable[[], object]) -> None:
    """`words` is a regular expression that the message must contain."""
    try:
        action()
    except Failure as failure:
        if re.search(words, str(failure)):
            return
        raise Failure(f"{what}: noticed, but for another reason: {failure}") from None
    raise Failure(f"{what}: went unnoticed")


def self_test(system: Side, loam: Side, folder: Path) -> str:
    # This side claims to be Loam, and is the system.
    impostor = dataclasses.replace(system, is_loam=True)
    stray = dataclasses.replace(loam, is_loam=False)
    expect_failure("a run without the preload", r"without libloam|malloc from \S*/libc\.so",
                   lambda: run(impostor, ["sort", "/dev/null"], folder=folder, timeout=300))
    expect_failure("a preload on the system's side", r"with libloam|malloc from \S*/libloam\.so",
                   lambda: run(stray, ["sort", "/dev/null"], folder=folder, timeout=300))
    expect_failure("a program that fails", "exit status 3",
                   lambda: run(loam, ["sh", "-c", "exit 3"], folder=folder, timeout=300))
    expect_failure("a program that crashes", "SIGSEGV",
                   lambda: run(loam, ["sh", "-c", "kill -SEGV $$"], folder=folder, timeout=300))
    expect_failure("a program that hangs", "still running",
                   lambda: run(loam, ["sleep", "60"], folder=folder, timeout=1))
    expect_failure("outputs that differ", "line 2",
                   lambda: expect_equal("output", "one\ntwo\n", "one\n2\n"))
    expect_failure("an output that is cut short", "line 2",
                   lambda: expect_equal("output", "one\ntwo\n", "one\n"))
    run(loam, ["sort", "/dev/null"], folder=folder, timeout=300)
    run(system, ["sort", "/dev/null"], folder=folder, timeout=300)
    return "the harness notices what it should"
