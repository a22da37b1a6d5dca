"""A case, and the possible results of its runs."""

from __future__ import annotations

import dataclasses
import enum


class Status(enum.Enum):
    """How one run of one program ended."""

    PASS = "pass"
    FAIL = "fail"
    CRASH = "crash"
    TIMEOUT = "timeout"
    NOT_RUN = "not run"  # The program could not be started, or the preload had no effect.


class Verdict(enum.Enum):
    """What a run shows about the library, given the run without it."""

    PASS = "pass"
    FAIL = "fail"  # The library's fault: without it the same test passes.
    DIFFERS = "differs"  # A failure of a test that is reported but does not gate.
    BROKEN = "broken"  # The test fails without the library as well: shim, machine or test.


@dataclasses.dataclass(frozen=True)
class Case:
    """One test of one suite: what to compile, how to run it, and what to expect."""

    suite: str
    name: str
    checks: str  # What it verifies, in a few words, for the table.
    source: str = ""  # Inside the suite's fetched folder; empty: `command` is a program on PATH.
    extra_sources: tuple[str, ...] = ()  # Ours, inside tests/conformance.
    arguments: tuple[str, ...] = ()
    full_arguments: tuple[str, ...] | None = None  # With --full, if they differ.
    command: str = ""
    flags: tuple[str, ...] = ()
    # (old, new) replacements that shorten the test; never applied with --full. Each must match.
    shorten: tuple[tuple[str, str], ...] = ()
    timeout: int = 240  # Seconds: many times what any test needs on two idle cores.
    full_timeout: int = 900
    gates: bool = True
    note: str = ""  # Why the test does not gate, or other remarks for readers.
    must_print: str = ""  # A test that always exits 0 prints this if it passed.
    # Checks inside the test that the system's malloc is known to fail; "" for the whole test. The
    # control is then judged by the other checks.
    system_fails: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.suite}/{self.name}"


@dataclasses.dataclass
class Run:
    """One run of one case under one allocator."""

    status: Status
    detail: str = ""  # One line: the signal, the first failed checks, the time limit.
    seconds: float = 0.0
    passed: int = 0  # Checks that the test itself reported.
    failed: tuple[str, ...] = ()
    skipped: int = 0
    output: str = ""  # The end of the test's output.

    @property
    def ok(self) -> bool:
        return self.status is Status.PASS


@dataclasses.dataclass
class Result:
    """A case with its run under the library and, if there was one, its control."""

    case: Case
    verdict: Verdict
    run: Run
    control: Run | None

    @property
    def blocks(self) -> bool:
        """Whether this result must fail the whole run."""
        return self.verdict is Verdict.FAIL or (self.verdict is Verdict.BROKEN and self.case.gates)


class ConformanceError(Exception):
    """A fault outside the tests. The message names it and the remedy."""


def control_passes(case: Case, control: Run) -> bool:
    """Whether the control run shows that the test itself works on this machine."""
    if control.ok:
        return True
    if control.status is not Status.FAIL:
        return False
    if not control.failed:
        return "" in case.system_fails
    return set(control.failed) <= set(case.system_fails)


def judge(case: Case, run: Run, control: Run | None) -> Verdict:
    if run.ok:
        return Verdict.PASS
    if control is not None and not control_passes(case, control):
        return Verdict.BROKEN
    return Verdict.FAIL if case.gates else Verdict.DIFFERS
