#!/usr/bin/env python3
"""The tests of <loam/win32.h> on the heap of the system itself (Wine's), where that header is
<windows.h>.

    tests/windows/native_heap.py --program HEAPS --windows RUNNER [--write]

On Linux the same tests pass on Loam. wine_heap.md lists those that Wine's heap does not pass,
with the reason, and exactly these fail here. Each runs in a process of its own, because some end
it. --write adds rows for new ones, with a question mark for the reason, and removes those that
pass. Exit status: 0 as listed, 1 not.
"""
from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import each

DOCUMENT = Path(__file__).resolve().with_name("wine_heap.md")
BEGIN = "<!-- tests/windows/native_heap.py: begin -->"
END = "<!-- tests/windows/native_heap.py: end -->"
ROW = re.compile(r"^\| `(\S+)` \| (.*) \|$", re.M)
FILTER = "*/win32.*:Win32*"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--windows", type=shlex.split, default=[], metavar="RUNNER")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--show", action="store_true", help="what those that fail say")
    arguments = parser.parse_args()
    command = [*arguments.windows, arguments.program]

    tests = each.cases(command, FILTER)
    if not tests:
        print("the program has no such tests")
        return 1
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        said = dict(zip(tests, pool.map(lambda test: each.failure(command, test), tests)))
    failing = [test for test in tests if said[test]]
    if arguments.show:
        print("\n".join(said[test] for test in failing))
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    table, after = rest.split(END)
    known = dict(ROW.findall(table))
    if arguments.write:
        rows = "".join(f"| `{test}` | {known.get(test, '?')} |\n" for test in failing)
        head = f"| Of {len(tests)} tests Wine's heap does not pass | What it does |\n|---|---|\n"
        DOCUMENT.write_text(f"{before}{BEGIN}\n{head}{rows}{END}{after}")
        return 0
    wrong = [f"passes, and is listed: {test}" for test in known if test not in failing]
    wrong += [f"fails, and is not listed: {said[test]}" for test in failing if test not in known]
    print("\n".join(wrong) or f"{len(tests)} tests, {len(failing)} differences, as listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
