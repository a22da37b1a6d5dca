#!/usr/bin/env python3
"""Uses the tool of one file (`make static`) in roots of other systems: what it needs of them, and
what it can do there.

    tests/packaging/roots.py [--work DIR] [ROOT...]     default: all that this machine can make

Roots are made of Debian's archive by mmdebstrap, without running anything in them. As root, because
of chroot and namespaces.
"""
from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "packaging"))
from making.native import MUSL_AARCH64, VARIANTS  # noqa: E402
from making.source import version  # noqa: E402

# A heap of 40 MB, freed but for a block in each MiB; then it waits.
FAT = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *blocks[40 * 1024];
int main(void) {
  for (int i = 0; i < 40 * 1024; i++) memset(blocks[i] = malloc(1024), 1, 1024);
  for (int i = 0; i < 40 * 1024; i++) if (i % 1024) free(blocks[i]);
  puts("ready"); fflush(stdout);
  while (getppid() != 1) { free(malloc(100)); usleep(1000); }
  return 0;
}
"""


class Failed(Exception):
    pass


def file_of(processor: str) -> Path:
    return ROOT / f"build/packages/loam-{version()}-linux-{processor}"


def make_root(suite: str, folder: Path) -> None:
    subprocess.run(["mmdebstrap", "--variant=extract",
                    "--include=perl-base,dash,coreutils,libc-bin", suite, folder],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not (folder / "bin").exists():
        # base-files of newer releases leaves these links to the installer.
        for name in ("bin", "sbin", "lib", "lib64"):
            (folder / name).symlink_to(f"usr/{name}")


class Place:
    """A root with the tool in it, with /proc of a PID namespace of its own, read-only if so
    wanted."""

    def __init__(self, folder: Path, user: int = 0, read_only: bool = False) -> None:
        self.folder, self.user, self.read_only = folder, user, read_only
        (folder / "proc").mkdir(exist_ok=True)
        (folder / "tmp").mkdir(exist_ok=True)
        (folder / "tmp").chmod(0o1777)
        shutil.copy(file_of("x86_64"), folder / "loam")

    def enter(self) -> list[str]:
        """The words that run a command there. The mounts end with the namespace."""
        root = shlex.quote(str(self.folder))
        mounts = f"mount --bind {root} {root} && mount -t proc proc {root}/proc"
        if self.read_only:
            mounts += f" && mount -o remount,bind,ro {root}"
        switch = f"--userspec={self.user}:{self.user} " if self.user else ""
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec",
                f"{mounts}; exec chroot {switch}{root} \"$@\"", "sh"]

    def run(self, *words: str, status: int | tuple[int, ...] = 0) -> str:
        done = subprocess.run([*self.enter(), *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=300)
        allowed = status if isinstance(status, tuple) else (status,)
        if done.returncode not in allowed:
            raise Failed(f"{shlex.join(words)}: exit status {done.returncode}\n{done.stdout}")
        return done.stdout

    def about(self, command: list[str], *verbs: tuple[str, ...]) -> list[tuple[int, str]]:
        """Starts a program there that prints `ready`, and asks the tool, in the same namespaces,
        about it."""
        patient = subprocess.Popen([*self.enter(), *command], stdout=subprocess.PIPE, text=True)
        try:
            if "ready" not in patient.stdout.readline():
                raise Failed(f"{shlex.join(command)} did not start")
            inside = self.pid_of(patient.pid)
            answers = []
            for verb in verbs:
                # The namespaces and the root of the program, as `docker exec` enters them.
                words = ["nsenter", "--target", str(inside), "--mount", "--pid", "--root",
                         *([f"--setuid={self.user}", f"--setgid={self.user}"] if self.user else []),
                         "/loam", *(word.replace("PID", "1") for word in verb)]
                done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True,
                                      errors="replace", timeout=300)
                answers.append((done.returncode, done.stdout))
            return answers
        finally:
            # `unshare` ignores SIGTERM; its child ends with it.
            patient.kill()
            patient.stdout.close()
            patient.wait()

    @staticmethod
    def pid_of(outer: int) -> int:
        """The number here of the only child of `unshare`."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            children = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
            if children:
                return int(children[0])
        raise Failed("unshare started nothing")


def expect(condition: bool, words: str) -> None:
    if not condition:
        raise Failed(words)


def compiled(folder: Path, *options: str, compiler: tuple[str, ...] = ("gcc",)) -> Path:
    source, target = folder / "fat.c", folder / "fat"
    source.write_text(FAT)
    subprocess.run([*compiler, "-O1", "-fno-builtin", *options, source, "-o", target], check=True)
    return target


def debian(suite: str) -> Callable[[Path], None]:
    def case(work: Path) -> None:
        make_root(suite, work / "root")
        place = Place(work / "root")
        script = "open(my $maps, '<', '/proc/self/maps'); print grep { /libloam/ } <$maps>;"
        for user in (0, 65534):
            place.user = user
            seen = place.run("/loam", "run", "--", "perl", "-e", script)
            expect("/tmp/loam-" in seen and "cannot be preloaded" not in seen,
                   f"{suite}, user {user}: {seen}")
            seen = place.run("/loam", "record", "-o", "/tmp/t", "--overwrite", "--", "perl", "-e",
                             "my @a = map { 'x' x 100 . $_ } 1..20000")
            expect("events in" in seen, f"{suite}, user {user}: {seen}")
            os.remove(work / "root/tmp/t")
        place.user = 0
        # Its own glibc's heap, read and trimmed.
        patient = ["perl", "-e", "$| = 1; my @a = map { 'x' x 3000 . $_ } 1..20000; my @b = grep { "
                                 "0 == length($_) % 3004 } @a; "
                   "undef @a; print \"ready\\n\"; sleep 600"]
        for user in (0, 65534):
            place.user = user
            answers = place.about(patient, ("doctor", "PID"), ("stats", "PID"), ("census", "PID"),
                                  ("pins", "PID"),
                                  ("trim", "PID", "--dry-run"), ("trim", "PID"))
            for code, text in answers:
                expect(code in (0, 1), f"{suite}, user {user}: exit status {code}\n{text}")
            expect("glibc" in answers[0][1], f"{suite}: {answers[0][1]}")
        # Nothing may be written anywhere: the part is a file in memory.
        place.user, place.read_only = 0, True
        seen = place.run("/loam", "run", "--", "perl", "-e", script)
        expect("memfd:libloam.so" in seen, f"{suite}, read-only: {seen}")
    return case


def musl(work: Path) -> None:
    """A root with musl's loader alone."""
    if shutil.which("musl-gcc") is None:
        raise FileNotFoundError("musl-gcc")
    folder = work / "root"
    (folder / "lib").mkdir(parents=True)
    shutil.copy("/usr/lib/x86_64-linux-musl/libc.so", folder / "lib/ld-musl-x86_64.so.1")
    place = Place(folder)
    shutil.copy(compiled(work, compiler=("musl-gcc",)), folder / "fat")
    answers = place.about(["/loam", "run", "--", "/fat"], ("stats", "PID"), ("doctor", "PID"))
    expect("on Loam" in answers[0][1], f"musl: {answers[0]}")
    expect(answers[1][0] in (0, 1), f"musl: {answers[1]}")
    parts = list((folder / "tmp").glob("loam-0/*/libloam.so"))
    expect(len(parts) == 1 and b"libc.so\0" in parts[0].read_bytes(), f"musl: {parts}")
    answers = place.about(["/fat"], ("stats", "PID"))
    expect(answers[0][0] == 0 and "musl" in answers[0][1], f"musl: {answers}")


def empty(work: Path) -> None:
    """The tool and a static program, nothing else; also read-only and as a user without a name."""
    folder = work / "root"
    folder.mkdir()
    shutil.copy(compiled(work, "-static"), folder / "fat")
    for user, read_only in ((0, False), (65534, False), (0, True), (65534, True)):
        place = Place(folder, user, read_only)
        expect(f"loam {version()}" in place.run("/loam", "--version"), "empty: --version")
        answers = place.about(["/fat"], ("stats", "PID"), ("doctor", "PID"), ("pins", "PID"))
        # The doctor sees no heap that it knows, and says so.
        expect("I can not tell" in answers[1][1], f"empty: {answers[1]}")
        expect(answers[0][0] == 0 and "40." in answers[0][1],
               f"empty, user {user}, read-only {read_only}: {answers[0]}")
        expect("can not be seen from outside" in answers[2][1], f"empty: {answers[2]}")
        seen = place.run("/loam", "run", "--", "/fat", status=2)
        expect("static" in seen, f"empty: {seen}")


def aarch64(work: Path) -> None:
    """The file for aarch64 under qemu-user: glibc of Debian, and musl."""
    if shutil.which("qemu-aarch64") is None:
        raise FileNotFoundError("qemu-aarch64")
    tool = file_of("aarch64")
    def run(*words: str | Path) -> str:
        return subprocess.run(["qemu-aarch64", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              timeout=300, env={**os.environ, "TMPDIR": str(work)}).stdout
    expect(f"loam {version()}" in run(tool, "--version"), "aarch64: --version")
    seen = run(tool, "stats", str(os.getpid()))
    expect("resident" in seen, f"aarch64: {seen}")
    for libc, root in (("gnu", Path("/usr/aarch64-linux-gnu")), ("musl", MUSL_AARCH64)):
        program = compiled(work, compiler=VARIANTS[f"aarch64-{libc}"].compiler)
        # An emulated program can start no emulated program here, so what would be preloaded is
        # checked, and then preloaded.
        seen = run("-L", root, tool, "run", "--check", "--", program)
        expect("can run on" in seen, f"aarch64 {libc}: {seen}")
        part = next(word for word in seen.split() if word.endswith("libloam.so"))
        served = subprocess.Popen(["qemu-aarch64", "-L", root, "-E", f"LD_PRELOAD={part}", program],
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        line = served.stdout.readline()
        served.kill()
        served.stdout.close()
        served.wait()
        expect("ready" in line, f"aarch64 {libc}: {line}")


CASES: dict[str, Callable[[Path], None]] = {
    "bookworm": debian("bookworm"), "trixie": debian("trixie"), "bullseye": debian("bullseye"),
    "musl": musl, "empty": empty, "aarch64": aarch64}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--work", type=Path,
                        help="a folder for the roots, instead of one that goes")
    parser.add_argument("cases", nargs="*", metavar="ROOT", help=", ".join(CASES))
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        print("roots: skipped: root and mmdebstrap are needed")
        return 0
    failed = 0
    for name in arguments.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="loam-roots-", dir=arguments.work) as work:
            Path(work).chmod(0o755)
            try:
                CASES[name](Path(work))
                print(f"roots.{name}: passed", flush=True)
            except FileNotFoundError as lack:
                print(f"roots.{name}: skipped: {lack}", flush=True)
            except (Failed, subprocess.SubprocessError) as failure:
                failed += 1
                print(f"roots.{name}: FAILED\n{failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
