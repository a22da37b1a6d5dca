#!/usr/bin/env python3
"""Checks `bench/counted`: a heap beside itself has the same counts, and beside the system's malloc
other ones.

    tests/gates/counted.py LIBRARY

So a library that is not preloaded at all is found: its counts are those of the system's malloc.
Exit status: 0 in order, 1 not, 77 skipped (no valgrind).
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

COUNTED = Path(__file__).resolve().parent.parent.parent / "bench" / "counted"
SKIPPED = 77


def ratio_of_instructions(before: str, after: str) -> float:
    done = subprocess.run([COUNTED, "--quick", before, after, "perl"], capture_output=True,
                          text=True, timeout=250)
    row = re.search(r"^perl +\d+ M +([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or row is None:
        sys.exit(f"bench/counted {before} {after}: status "
                 f"{done.returncode}\n{done.stdout}{done.stderr}")
    return float(row.group(1))


def main() -> None:
    if shutil.which("valgrind") is None:
        print("no valgrind here (Debian package valgrind)")
        sys.exit(SKIPPED)
    library = sys.argv[1]
    itself, system = ratio_of_instructions(library, library), ratio_of_instructions("system",
                                                                                    library)
    print(f"instructions of perl: {itself:.4f} times those beside itself, {system:.4f} times those "
          f"on the system's malloc")
    if abs(itself - 1) > 0.001:
        sys.exit("the same heap has two counts")
    if abs(system - 1) < 0.002:
        sys.exit("the heap was not preloaded: it has the counts of the system's malloc")
    missing = subprocess.run([COUNTED, "nowhere.so", library], capture_output=True, text=True,
                             timeout=60)
    if missing.returncode != 2 or "no such file: nowhere.so" not in missing.stderr:
        sys.exit(f"a heap that does not exist: status {missing.returncode}, {missing.stderr}")


if __name__ == "__main__":
    main()
