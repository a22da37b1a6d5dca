#!/usr/bin/env python3
"""Programs of other projects, run on Loam: each must do what it does on the system's malloc.

    tests/programs/run.py CASE [--long] [--library build/libloam.so] [--tool build/loam]
    tests/programs/run.py --list

Cases run the same work twice, once on the system's malloc and once under `loam run` (a bare
LD_PRELOAD if the tool is not built). They prove that libloam.so really served the second run, and
compare all results. Exit status: 0 equal, 1 not, 2 bad usage.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import compilers  # noqa: E402
import compressors  # noqa: E402
import databases  # noqa: E402
import harness  # noqa: E402
import interpreters  # noqa: E402
import repositories  # noqa: E402
import selftest  # noqa: E402
from harness import ROOT, Failure, loam_side, system_side  # noqa: E402

CASES = {
    "python": interpreters.python,
    "g++": compilers.cxx,
    "git": repositories.git,
    "sqlite3": databases.sqlite,
    "redis": databases.redis,
    "xz": compressors.xz,
    "zstd": compressors.zstd,
    "self_test": selftest.self_test,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("case", nargs="?", choices=[*CASES])
    parser.add_argument("--library", type=Path, default=ROOT / "build" / "libloam.so")
    parser.add_argument("--tool", type=Path, default=ROOT / "build" / "loam")
    parser.add_argument("--long", action="store_true", help="more data")
    parser.add_argument("--list", action="store_true", help="print the cases")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return 0
    if arguments.case is None:
        parser.error("which case?")
    harness.is_long = arguments.long
    started = time.monotonic()
    try:
        loam = loam_side(arguments.library.resolve(), arguments.tool.absolute())
        with tempfile.TemporaryDirectory(prefix="loam-programs-") as folder:
            summary = CASES[arguments.case](system_side(), loam, Path(folder))
    except Failure as failure:
        print(f"{arguments.case}: {failure}", file=sys.stderr)
        return 1
    print(f"{arguments.case}: {summary} ({loam.name}, {time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
