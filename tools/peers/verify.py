"""Proves that a built peer serves a program: preloads it into verify.c and reads the answer."""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


class VerifyError(Exception):
    """The object does not serve malloc. The text says in what way."""


def prepare(work, compiler):
    """Compiles the probe once; returns its path."""
    probe = work / "verify"
    source = HERE / "verify.c"
    if not probe.exists() or probe.stat().st_mtime < source.stat().st_mtime:
        command = [
            *compiler,
            "-O1",
            "-fno-builtin",
            "-D_GNU_SOURCE",
            str(source),
            "-o",
            str(probe),
            "-ldl",
            "-lpthread",
        ]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise VerifyError(
                f"the probe did not compile: {result.stderr.strip().splitlines()[-1]}"
            )
    return probe


def check(probe, shared_object, environment):
    """Raises VerifyError unless the object is mapped, owns malloc and survives the threads."""
    env = {**os.environ, **environment, "LD_PRELOAD": str(shared_object)}
    try:
        result = subprocess.run(
            [str(probe), str(shared_object)], env=env, capture_output=True, text=True, timeout=60
        )
    except subprocess.TimeoutExpired:
        raise VerifyError("the probe did not end within 60 s under LD_PRELOAD") from None
    if result.returncode < 0:
        raise VerifyError(f"the probe died of signal {-result.returncode} under LD_PRELOAD")
    if result.returncode:
        raise VerifyError(
            (result.stderr.strip() or f"the probe ended with {result.returncode}").splitlines()[-1]
        )
