"""The runner's own test: a faithful allocator passes, and each known fault is noticed."""

from __future__ import annotations

import os
import pathlib
import subprocess

from . import execute
from .build import HERE
from .model import ConformanceError, Verdict, judge

# Fault in shim/faulty.c, and tests that must fail under it. NONE must pass them all.
FAULTS = {
    "NONE": (),
    "DIRTY_CALLOC": ("glibc/tst-calloc", "snmalloc/func-memory"),
    "NULL_FOR_ZERO": ("gnulib/test-malloc-gnu", "mimalloc/test-api", "glibc/tst-malloc"),
    "NO_ENOMEM": ("gnulib/test-calloc-gnu", "glibc/tst-realloc", "glibc/tst-memalign"),
    "ERRNO_LOST": ("gnulib/test-free", "glibc/tst-free-errno"),
    "MISALIGNED": ("gnulib/test-posix_memalign", "mimalloc/test-api"),
    "TRUNCATED": ("glibc/tst-realloc",),
    "GIVEN_TWICE": ("snmalloc/func-memory", "mimalloc/test-stress"),
}


def cases_needed():
    return sorted({name for names in FAULTS.values() for name in names})


def _build(work: pathlib.Path, fault: str) -> pathlib.Path:
    source = HERE / "shim/faulty.c"
    library = work / "bin" / f"faulty-{fault.lower()}.so"
    command = [*os.environ.get("CC", "cc").split(), "-O1", "-fno-builtin", "-fPIC", "-shared",
               f"-DFAULT={fault}", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ConformanceError(f"shim/faulty.c does not compile:\n  {done.stderr.strip()}")
    return library


def run(builder, cases) -> int:
    """Runs each fault under its tests, and returns the number of unexpected results."""
    by_name = {case.full_name: case for case in cases}
    system = execute.Allocator(None)
    surprises = 0
    for fault, names in FAULTS.items():
        allocator = execute.Allocator(_build(builder.work, fault))
        for name in names or cases_needed():
            case = by_name[name]
            program = builder.program(case)
            outcome = execute.run(case, program, allocator, full=False)
            control = execute.run(case, program, system, full=False)
            verdict = judge(case, outcome, control)
            if fault == "NONE":
                # Failures that the system's malloc shares belong to the system.
                expected = outcome.ok or verdict is Verdict.BROKEN or (
                    set(outcome.failed) == set(control.failed))
            else:
                expected = verdict is Verdict.FAIL
            surprises += not expected
            word = "ok" if expected else "SURPRISE"
            print(f"{word:9}{fault:14} {name:30} {outcome.detail or 'pass'}", flush=True)
    return surprises
