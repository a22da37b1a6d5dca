"""The common part of the cases: runs a program on the system's malloc and on Loam, with a limit,
and proves that Loam really served it.

The proof is the dynamic linker's own log (LD_DEBUG=files,bindings): in every process that the
command started, libloam.so was loaded and every `malloc` that was bound was bound to it.
"""
from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent

# The short form has the same steps on less data.
is_long = False


class Failure(Exception):
    """The tested behaviour did not occur. The message says where and what."""


@dataclass(frozen=True)
class Side:
    """One of the two runs that are compared."""
    name: str
    prefix: tuple[str, ...]
    environment: dict[str, str]
    is_loam: bool


@dataclass
class Finished:
    output: str
    errors: str
    processes: int
    """How many processes the linker's log shows."""


def system_side() -> Side:
    return Side("system", (), {}, False)


def loam_side(library: Path, tool: Path | None) -> Side:
    """`loam run`, or a bare preload if the tool is not built."""
    if not library.is_file():
        raise Failure(f"{library} does not exist; run 'make build'")
    if tool is not None and tool.exists():
        return Side("loam run", (str(tool), "run", "--"), {}, True)
    return Side("LD_PRELOAD", (), {"LD_PRELOAD": str(library)}, True)


# --- Reading the dynamic linker's log ------------------------------------------------------------

STARTED = re.compile(r"transferring control: (\S+)")
MALLOC = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `malloc'")


def check_log(text: str, where: str, expect_loam: bool) -> list[str]:
    """Programs started according to one process's log; raises if one was not served as expected."""
    started = []
    loaded = False
    for line in text.splitlines():
        if "calling init:" in line and "libloam.so" in line:
            loaded = True
        elif match := STARTED.search(line):
            started.append(match.group(1))
            if loaded != expect_loam:
                raise Failure(f"{where}: {match.group(1)} runs {'with' if loaded else 'without'} "
                              "libloam.so")
            loaded = False
        # A program that takes malloc's address has an entry of its own for it, which refers to the
        # real one.
        elif ((match := MALLOC.search(line)) and ".so" in match.group(2)
              and ("libloam" in match.group(2)) != expect_loam):
            raise Failure(f"{where}: {match.group(1)} takes malloc from {match.group(2)}")
    return started


def check_logs(folder: Path, side: Side, program: str) -> int:
    started: list[str] = []
    for log in sorted(folder.iterdir()):
        started += check_log(log.read_text(errors="replace"), f"{side.name}: {log.name}",
                             side.is_loam)
        log.unlink()
    names = {Path(name).name for name in started}
    if program not in names:
        raise Failure(f"{side.name}: the linker's log shows no {program}, only {sorted(names)}")
    return len(started)


# --- Running -------------------------------------------------------------------------------------

def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the command and its children: it leads its own session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def start(side: Side, command: list[str | Path], *, folder: Path, logs: Path,
          environment: dict[str, str] | None = None, stdin: Path | None = None,
          stdout: Path, stderr: Path) -> subprocess.Popen[bytes]:
    """`env` is between them, so that the log covers the command and not `loam run` itself."""
    words = [*side.prefix, "env", "LD_DEBUG=files,bindings", f"LD_DEBUG_OUTPUT={logs / 'linker'}",
             *(f"{key}={value}" for key, value in (environment or {}).items()),
             *map(str, command)]
    clean = {key: value for key, value in os.environ.items()
             if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH") and not key.startswith("LOAM_")}
    clean.update(side.environment, LC_ALL="C.UTF-8")
    with open(stdin or os.devnull, "rb") as source, open(stdout, "wb") as output, \
            open(stderr, "wb") as errors:
        return subprocess.Popen(words, cwd=folder, env=clean, stdin=source, stdout=output,
                                stderr=errors, start_new_session=True)


def run(side: Side, command: list[str | Path], *, folder: Path, timeout: float,
        program: str | None = None, environment: dict[str, str] | None = None,
        stdin: Path | None = None, stdout: Path | None = None) -> Finished:
    """Runs a command to its end on one side; any other end than exit status 0 is a failure."""
    program = program or Path(str(command[0])).name
    with tempfile.TemporaryDirectory(prefix="loam-log-") as temporary:
        logs = Path(temporary) / "linker"
        logs.mkdir()
        output = stdout or Path(temporary) / "stdout"
        errors = Path(temporary) / "stderr"
        process = start(side, command, folder=folder, logs=logs, environment=environment,
                        stdin=stdin, stdout=output, stderr=errors)
        shown = f"{side.name}: {shlex.join(map(str, command))[:200]}"
        try:
            status = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"{shown}: still running after {timeout:.0f} s") from None
        finally:
            kill_group(process)
        text = errors.read_text(errors="replace")
        if status != 0:
            tail = text[-3000:] or output.read_text(errors="replace")[-3000:]
            raise Failure(f"{shown}: {describe(status)}\n{tail}")
        processes = check_logs(logs, side, program)
        return Finished("" if stdout else output.read_text(errors="replace"), text, processes)


def describe(status: int) -> str:
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


@contextmanager
def server(side: Side, command: list[str | Path], *, folder: Path, program: str,
           environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs beside the test until the test ends it. Its log is checked at the end."""
    with tempfile.TemporaryDirectory(prefix="loam-log-") as temporary:
        logs = Path(temporary)
        output = folder / f"{program}.log"
        process = start(side, command, folder=folder, logs=logs, environment=environment,
                        stdout=output, stderr=output.with_suffix(".err"))
        try:
            yield process
        except Failure as failure:
            said = output.read_text(errors="replace")[-2000:]
            said += output.with_suffix(".err").read_text(errors="replace")[-2000:]
            raise Failure(f"{failure}\n{said}") from None
        finally:
            kill_group(process)
        check_logs(logs, side, program)


def mapped_libraries(pid: int) -> set[str]:
    """Base names of the shared objects that a live process has mapped."""
    text = Path(f"/proc/{pid}/maps").read_text()
    return {Path(line.split()[-1]).name for line in text.splitlines() if ".so" in line}


# --- Comparing -----------------------------------------------------------------------------------

def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") \
            else hashlib.sha256(file.read()).hexdigest()


def expect_equal(what: str, system: str, loam: str) -> None:
    if system == loam:
        return
    pairs = zip(system.splitlines() + ["(end)"], loam.splitlines() + ["(end)"])
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            raise Failure(f"{what} differs at line {number}:\n  system: {left[:300]}\n"
                          f"  loam:   {right[:300]}")
    raise Failure(f"{what} differs in length: {len(system)} and {len(loam)} characters")


def expect_same_file(what: str, system: Path, loam: Path) -> None:
    expect_equal(f"{what} (its SHA-256)", digest(system), digest(loam))
