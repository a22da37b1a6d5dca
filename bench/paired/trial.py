"""One trial: one process under one allocator, started and watched by build/bench/launch."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from .errors import SetupError, not_built

LAUNCHER_FAULT, NO_COMMAND, TIMED_OUT = 125, 127, 124
GRACE = 5  # seconds that a server may take to end after its client has


class TrialFailed(Exception):
    """The program under this allocator crashed, hung or printed nonsense."""


class TrialTooLong(TrialFailed):
    """The program ran past its limit. Other parts of the gate can still succeed."""


@dataclass
class Case:
    """The command of a trial: a program with its arguments. `repeat`: start-up, timed many
    times."""

    program: Path
    arguments: list
    repeat: int = 0
    timeout: int = 600
    environment: dict = field(default_factory=dict)
    foreign: bool = False  # of another project: its output is an answer, not the lab's JSON lines
    # A server's client, which does not run under the allocator. Its output is the answer, and it
    # ends the server.
    client: list = field(default_factory=list)


@dataclass
class Outcome:
    """The results of one trial: the launcher's report and the program's own lines."""

    watch: dict
    start: dict
    checkpoints: list
    end: dict
    answer: str = ""  # of a program of another project

    def series(self, name):
        """The checkpoints of one series, in order."""
        return [line for line in self.checkpoints if line.get("series") == name]


class Runner:
    """Starts trials. `padding` varies the environment's length, and so the layout of the stack."""

    def __init__(self, launcher):
        if not launcher.is_file():
            raise SetupError(not_built(launcher))
        self.launcher = launcher

    @staticmethod
    def require(program):
        if not os.access(program, os.X_OK):
            raise SetupError(not_built(program))

    @staticmethod
    def preload_problem(allocator):
        """Why the dynamic linker does not load the allocator; None if it does. The linker only
        warns and continues with the system's malloc, which would then be measured."""
        if allocator.path is None:
            return None
        environment = {**os.environ, **allocator.environment, "LD_PRELOAD": str(allocator.path)}
        seen = subprocess.run(
            ["cat", "/proc/self/maps"], env=environment, capture_output=True, text=True
        )
        if seen.returncode == 0 and str(allocator.path.resolve()) in seen.stdout:
            return None
        reason = seen.stderr.strip().splitlines()
        return reason[0] if reason else f"`cat` under it ended with status {seen.returncode}"

    def run(self, case, allocator, padding):
        with tempfile.TemporaryDirectory(prefix="loam-bench-") as folder:
            report = Path(folder) / "report.json"
            command = [str(self.launcher), "--report", str(report)]
            command += ["--timeout", str(case.timeout), "--set", f"BENCH_PADDING={'x' * padding}"]
            if allocator.path:
                command += ["--preload", str(allocator.path)]
            for name, value in {**case.environment, **allocator.environment}.items():
                command += ["--set", f"{name}={value}"]
            if case.repeat:
                command += ["--repeat", str(case.repeat)]
            command += ["--", str(case.program), *map(str, case.arguments)]
            output = self._execute(command, case)
            if output.returncode == LAUNCHER_FAULT:
                raise SetupError(output.stderr.strip() or "the launcher failed")
            self._judge(output, case)
            try:
                watch = json.loads(report.read_text())
            except (OSError, ValueError):
                raise TrialFailed("the launcher left no report") from None
        return self._parse(watch, output.stdout, case)

    @staticmethod
    def _execute(command, case):
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
        ) as process:
            try:
                answer = Runner._serve(process, case) if case.client else ""
                stdout, stderr = process.communicate()
            except BaseException:
                # The launcher's child ends with it, so that an interrupt leaves nothing running.
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, stdout + answer, stderr)

    @staticmethod
    def _serve(server, case):
        """What the client of a server prints. If the client fails and the server has ended, that is
        the reason. If the server still runs, it has given wrong answers or none."""
        with subprocess.Popen(
            list(map(str, case.client)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as client:
            try:
                stdout, stderr = client.communicate(timeout=case.timeout + GRACE)
            except BaseException as error:
                # Kills the client's own children too, which would continue to ask.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(client.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise TrialTooLong(f"its client ran past {case.timeout} s") from None
                raise
        if client.returncode != 0:
            try:
                server.wait(GRACE)
            except subprocess.TimeoutExpired:
                detail = stderr.strip().splitlines()[-1:] or ["no message"]
                raise TrialFailed(f"its client failed: {detail[0]}") from None
        return stdout

    @staticmethod
    def _judge(output, case):
        code = output.returncode
        if code == 0:
            return
        detail = output.stderr.strip().splitlines()[-1:] or [""]
        if code == TIMED_OUT:
            raise TrialTooLong(f"ran past its limit of {case.timeout} s")
        if code == NO_COMMAND:
            raise SetupError(detail[0])
        if code == 2 and not case.foreign:
            raise SetupError(f"{case.program.name} refused its arguments: {detail[0]}")
        if code > 128:
            raise TrialFailed(f"died of signal {code - 128} {detail[0]}".strip())
        raise TrialFailed(f"ended with status {code} {detail[0]}".strip())

    @staticmethod
    def _parse(watch, text, case):
        if case.repeat:
            return Outcome(watch, {}, [], {})
        if case.foreign:
            return Outcome(watch, {}, [], {}, text)
        try:
            lines = [json.loads(line) for line in text.splitlines()]
        except ValueError:
            raise TrialFailed("printed a line that is not JSON") from None
        start = next((line for line in lines if line.get("type") == "start"), None)
        end = next((line for line in lines if line.get("type") == "end"), None)
        if start is None or end is None:
            raise TrialFailed("printed no start or no end line")
        checkpoints = [line for line in lines if line.get("type") == "checkpoint"]
        return Outcome(watch, start, checkpoints, end)
