"""Compiles the tests. A program is built again only if one of its inputs changed."""

from __future__ import annotations

import concurrent.futures
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

from .model import Case, ConformanceError

HERE = pathlib.Path(__file__).resolve().parent.parent
SHIM = HERE / "shim"

# -fno-builtin: otherwise a compiler may remove an allocation whose result is unused, or assume what
# malloc returns. Then nothing is tested. -w: warnings would be about code of other projects.
COMMON = ("-O1", "-g", "-fno-builtin", "-w")


def _shim_digest() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(SHIM.rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


class Builder:
    """Builds cases under one work folder, in the short or the full form."""

    def __init__(self, work: pathlib.Path, full: bool):
        self.work = work
        self.full = full
        self.shim_digest = _shim_digest()

    def program(self, case: Case) -> pathlib.Path:
        """The path of the case's program, built or not."""
        if case.command:
            return pathlib.Path(shutil.which(case.command) or case.command)
        form = "full" if self.full and case.shorten else "short" if case.shorten else "any"
        return self.work / "bin" / case.suite / form / case.name

    def build(self, case: Case, suite_root: pathlib.Path) -> pathlib.Path:
        program = self.program(case)
        if case.command:
            return program
        source = suite_root / case.source
        if not source.is_file():
            raise ConformanceError(f"{case.full_name}: the suite has no {case.source}")
        text = source.read_bytes()
        if case.shorten and not self.full:
            for old, new in case.shorten:
                if text.count(old.encode()) != 1:
                    raise ConformanceError(f"{case.full_name}: '{old}' is not there to shorten")
                text = text.replace(old.encode(), new.encode())
            # The fetched file is not changed.
            source = program.parent / "source" / source.name
            source.parent.mkdir(parents=True, exist_ok=True)
            if not source.is_file() or source.read_bytes() != text:
                source.write_bytes(text)
        command = self._command(case, source, suite_root, program)
        digest = hashlib.sha256(
            "\0".join(command).encode() + text + self.shim_digest
        ).hexdigest()
        stamp = program.with_name(program.name + ".stamp")
        if program.is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
            return program
        program.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tail = "\n  ".join(done.stderr.strip().splitlines()[:12])
            raise ConformanceError(f"{case.full_name} does not compile:\n  {tail}")
        stamp.write_text(digest, encoding="utf-8")
        return program

    def _command(self, case, source, suite_root, program):
        cplusplus = source.suffix != ".c"
        compiler = os.environ.get("CXX", "c++") if cplusplus else os.environ.get("CC", "cc")
        flags = [flag.format(shim=SHIM, suite=suite_root) for flag in case.flags]
        extra = [str(HERE / path) for path in case.extra_sources]
        return [*compiler.split(), *COMMON, *flags, str(source), *extra, "-o", str(program),
                "-lpthread"]

    def probe(self) -> pathlib.Path:
        """The program that tells which object serves each allocation function."""
        program = self.work / "bin" / "probe"
        source = SHIM / "probe.c"
        if program.is_file() and program.stat().st_mtime > source.stat().st_mtime:
            return program
        program.parent.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CC", "cc").split()
        done = subprocess.run(
            [*compiler, "-O1", str(source), "-o", str(program), "-ldl"],
            capture_output=True, text=True, check=False,
        )
        if done.returncode != 0:
            raise ConformanceError(f"the probe does not compile:\n  {done.stderr.strip()}")
        return program


def prepare(work: pathlib.Path, suites, cases, full: bool, jobs: int, say):
    """Fetches the suites, builds the cases, and returns the builder and each suite's version.

    Runs that start at once, as under ctest -j, take turns here. The first one does the work.
    """
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        roots, versions = {}, {}
        for name in dict.fromkeys(case.suite for case in cases):
            folder = work / "suites" / name
            if not folder.is_dir():
                say(f"fetching {suites[name].SOURCE.replace('`', '')}")
            folder.mkdir(parents=True, exist_ok=True)
            roots[name], versions[name] = suites[name].fetch_into(folder)
        builder = Builder(work, full)
        builder.probe()
        with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
            for built in [pool.submit(builder.build, case, roots[case.suite]) for case in cases]:
                built.result()
    return builder, versions
