#!/usr/bin/env python3
"""Runs an example and compares what it prints with expected/NAME.txt.

    tests/examples/run.py run NAME PROGRAM
    tests/examples/run.py windows NAME SOURCE FOLDER    compiled by mingw-w64; run if Wine is there

FOLDER stays, with the settings of Wine: programs that a first start of Wine leaves running still
write to it.

Standard input is inputs/NAME.txt, if there is one. Exit status: 0 equal, 1 different, 77 skipped
(no compiler for Windows).
"""
from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "include"
WINDOWS_COMPILERS = ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-gcc-win32")
FOLDER_OF_WINE = "/usr/lib/wine"  # where Debian has Wine's programs if only they are installed
SKIPPED = 77


def output_of(command: list[str], name: str, **environment: str) -> str:
    given = HERE / "inputs" / f"{name}.txt"
    done = subprocess.run(command, input=given.read_bytes() if given.is_file() else b"",
                          env={**os.environ, **environment}, stdout=subprocess.PIPE, timeout=280)
    if done.returncode != 0:
        print(done.stdout.decode(errors="replace"))
        sys.exit(f"{name}: exit status {done.returncode}")
    return done.stdout.decode().replace("\r\n", "\n")


def compare(name: str, printed: str) -> None:
    expected = (HERE / "expected" / f"{name}.txt").read_text()
    if printed != expected:
        sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True),
                                                   printed.splitlines(True),
                                                   "expected", "printed"))
        sys.exit(f"{name} prints something else")


def windows(name: str, source: str, folder: Path) -> None:
    compiler = next(filter(None, map(shutil.which, WINDOWS_COMPILERS)), None)
    if compiler is None:
        print(f"no compiler for Windows here ({' or '.join(WINDOWS_COMPILERS)}; Debian package "
              "gcc-mingw-w64-x86-64-win32)")
        sys.exit(SKIPPED)
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"{name}.exe"
    subprocess.run([compiler, "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror",
                    "-isystem", str(INCLUDE), source, "-o", str(program)], check=True)
    print("compiled for Windows")
    path = os.environ.get("PATH", os.defpath) + os.pathsep + FOLDER_OF_WINE
    wine = shutil.which("wine64", path=path) or shutil.which("wine", path=path)
    if wine is None:
        print("not run: no Wine here")
        return
    compare(name, output_of([wine, str(program)], name, WINEPREFIX=str(folder.resolve() / "wine"),
                            WINEDEBUG="-all", DISPLAY=""))


def main() -> None:
    verb, *rest = sys.argv[1:] or [""]
    if verb == "run" and len(rest) == 2:
        compare(rest[0], output_of([rest[1]], rest[0]))
    elif verb == "windows" and len(rest) == 3:
        windows(rest[0], rest[1], Path(rest[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
