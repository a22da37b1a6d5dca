"""Runs one test program under one allocator, with a time limit, and interprets its output."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time

from .model import Case, ConformanceError, Run, Status

CHECK_LINE = re.compile(r"^check: (?P<name>\S+): (?P<result>ok|FAILED|skipped)", re.MULTILINE)
PRELOAD_ERROR = re.compile(r"object '.*' from LD_PRELOAD cannot be preloaded.*")
KEPT_LINES = 60

# Settings that would change the defaults of the system's malloc, or of a peer.
UNSET = ("LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_CONF", "MALLOC_ARENA_MAX", "MALLOC_CHECK_",
         "MALLOC_PERTURB_", "MALLOC_TRACE")


class Allocator:
    """A shared object to preload, or the system's malloc."""

    def __init__(self, library: pathlib.Path | None):
        self.library = library
        if library is not None and re.search(r"[\s:]", str(library)):
            raise ConformanceError(
                f"LD_PRELOAD cannot name {library}: its path has a space or a colon; copy or link "
                "the library to a path without one"
            )

    def environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name not in UNSET}
        environment["LC_ALL"] = "C"
        if self.library is not None:
            environment["LD_PRELOAD"] = str(self.library)
        return environment

    def served(self, probe: pathlib.Path) -> dict[str, bool]:
        """Which functions of the standard family the library itself serves.

        Raises if the preload has no effect: all later results would be those of the system.
        """
        done = subprocess.run(
            [str(probe)], env=self.environment(), capture_output=True, text=True, check=False,
            timeout=60,
        )
        refused = PRELOAD_ERROR.search(done.stderr)
        if refused or done.returncode != 0:
            said = f"exit status {done.returncode}: {done.stderr.strip()}"
            raise ConformanceError(
                f"{self.library} cannot be preloaded: {refused[0] if refused else said}"
            )
        served = {}
        for line in done.stdout.splitlines():
            name, path = line.split(" ", 1)
            served[name] = path != "-" and os.path.realpath(path) == os.path.realpath(self.library)
        absent = [name for name in ("malloc", "calloc", "realloc", "free") if not served[name]]
        if absent:
            raise ConformanceError(f"{self.library} does not provide {', '.join(absent)}")
        return served


def _no_core_files():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _status(case: Case, code: int, output: str, failed) -> tuple[Status, str]:
    refused = PRELOAD_ERROR.search(output)
    if refused:
        return Status.NOT_RUN, refused[0]
    if code < 0:
        name = signal.Signals(-code).name
        # A failed assert prints its message in the last line and aborts. This is no crash.
        said = [line for line in output.strip().splitlines() if line.strip()][-1:]
        status = Status.FAIL if -code == signal.SIGABRT else Status.CRASH
        return status, f"{name}{': ' + said[0].strip() if said else ''}"
    if failed:
        return Status.FAIL, "failed: " + ", ".join(failed)
    if code != 0:
        said = [line for line in output.strip().splitlines() if line.strip()][-2:]
        return Status.FAIL, f"exit status {code}" + (f": {'; '.join(said)}" if said else "")
    if case.must_print and case.must_print not in output:
        return Status.FAIL, f"did not print '{case.must_print}'"
    return Status.PASS, ""


def run(case: Case, program: pathlib.Path, allocator: Allocator, full: bool) -> Run:
    arguments = case.arguments
    if full and case.full_arguments is not None:
        arguments = case.full_arguments
    limit = case.full_timeout if full else case.timeout
    lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
    checks: list[tuple[str, str]] = []
    refused: list[str] = []

    with tempfile.TemporaryDirectory(prefix="loam-conformance-") as scratch:
        # A test may open its own program by name (test-free does), so it starts in the program's
        # folder. Its temporary files go into a folder that is removed afterwards.
        environment = allocator.environment() | {"TMPDIR": scratch}
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                [str(program), *arguments], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                cwd=scratch if case.command else program.parent, preexec_fn=_no_core_files,
            )
        except OSError as error:
            return Run(Status.NOT_RUN, f"{program}: {error.strerror}")

        def read():
            for raw in process.stdout:
                line = raw.decode("utf-8", "replace").rstrip("\n")[:500]
                lines.append(line)
                match = CHECK_LINE.match(line)
                if match:
                    checks.append((match["name"], match["result"]))
                elif PRELOAD_ERROR.search(line):
                    refused.append(line)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        timed_out = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        seconds = time.monotonic() - started
        # The test has a session of its own, so children that it left behind end with it.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        reader.join(10)

    output = "\n".join([*refused, *lines])
    failed = tuple(name for name, result in checks if result == "FAILED")
    if timed_out:
        status, detail = Status.TIMEOUT, f"still running after {limit} s"
        if failed:
            detail += "; failed so far: " + ", ".join(failed)
    else:
        status, detail = _status(case, process.returncode, output, failed)
    return Run(
        status, detail, seconds,
        passed=sum(result == "ok" for _, result in checks), failed=failed,
        skipped=sum(result == "skipped" for _, result in checks), output=output,
    )
