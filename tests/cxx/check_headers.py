#!/usr/bin/env python3
"""Compiles every public header as a user might: alone, as C++20 or newer, with many warnings as
errors, with and without exceptions and RTTI, with each installed compiler.

    tests/cxx/check_headers.py --include DIR [--compiler PATH]... [--jobs N]

Exit status: 0 all compile, 1 some do not.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import os
import shutil
import subprocess
import sys
from pathlib import Path

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow",
            "-Wundef", "-Wold-style-cast", "-Wnon-virtual-dtor", "-Werror"]
# The modes in which users compile. The last one combines everything that can be left out.
MODES = {
    "C++20": ["-std=c++20"],
    "C++23": ["-std=c++2b"],
    "without exceptions and RTTI": ["-std=c++20", "-fno-exceptions", "-fno-rtti"],
}


def attempt(compiler: str, mode: str, include: Path, header: str) -> str | None:
    # Included twice, because a header has a guard.
    source = f'#include "{header}"\n#include "{header}"\nint main() {{ return 0; }}\n'
    done = subprocess.run([compiler, *MODES[mode], *WARNINGS, f"-I{include}", "-x", "c++",
                           "-fsyntax-only", "-"], input=source, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return f"{header}, {Path(compiler).name}, {mode}:\n{done.stderr[:2000]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("--compiler", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()

    compilers = {str(Path(shutil.which(c) or c).resolve()) for c in arguments.compiler}
    for name in ("clang++", "clang++-14", "clang++-16"):
        found = shutil.which(name)
        if found:
            compilers.add(str(Path(found).resolve()))
    headers = sorted(str(p.relative_to(arguments.include))
                     for p in (arguments.include / "loam").rglob("*.hpp"))
    if not headers or not compilers:
        sys.exit("nothing to compile, or nothing to compile it with")
    umbrella = "loam/loam.hpp"
    # Each header is compiled alone once. The one that includes them all is compiled by every
    # compiler in every mode.
    first = arguments.compiler[0] if arguments.compiler else sorted(compilers)[0]
    work = [(first, "C++20", arguments.include, h) for h in headers if h != umbrella]
    work += [(c, mode, arguments.include, umbrella) for c in sorted(compilers) for mode in MODES]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        failures = [f for f in pool.map(lambda w: attempt(*w), work) if f]
    for failure in failures:
        print("FAILED", failure)
    print(f"{len(headers)} headers, {len(compilers)} compilers, {len(work)} compilations, "
          f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


main()
