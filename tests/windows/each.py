#!/usr/bin/env python3
"""Runs every case of a gtest program in a process of its own, as ctest does on Linux, because cases
rely on that.

    tests/windows/each.py --program PROGRAM [--windows RUNNER] [--filter FILTER] [--together]

With --together the cases first run in one process, because Wine takes long to start one. Those that
do not pass there have a process of their own as well, which decides.

Exit status: 0 all passed or were skipped, 1 one did not (its output is printed).
"""
from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

TRIES = 3
ABORTED = 3  # the exit code of abort() on Windows


def cases(command: list[str], chosen: str) -> list[str]:
    listed = subprocess.run([*command, "--gtest_list_tests", f"--gtest_filter={chosen}"],
                            capture_output=True, text=True,
                            timeout=300).stdout
    found, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith(" "):
            found.append(suite + name.strip())
        else:
            suite = name
    return found


def failure(command: list[str], case: str) -> str | None:
    """The output of a case that does not pass.

    Wine ends one program in some thousands with 1, before its first line or after its last. This
    happens with any heap, even to a program that only writes a line. Sometimes a program never
    ends. Of some thousand calls of CreateProcess one fails with 1359, in a program without a heap
    of ours too. Then GoogleTest aborts the parent of a death test, and its words are lost with the
    errors that it collects for the test. So a case has three tries unless GoogleTest names a
    failure, or the code is that of an abort or an exception. Tries that hang, and aborts of death
    tests, are printed.
    """
    said = ""
    for attempt in range(1, TRIES + 1):
        try:
            done = subprocess.run([*command, f"--gtest_filter={case}", "--gtest_brief=1"],
                                  capture_output=True,
                                  text=True, errors="replace", timeout=150)
        except subprocess.TimeoutExpired:
            said = f"{case}: it did not end in 150 seconds"
            print(f"{said} (try {attempt} of {TRIES})", flush=True)
            continue
        said = ""
        if done.returncode != 0:
            said = f"{case}: {done.returncode}\n{done.stdout}{done.stderr}"
        is_lost_child = done.returncode == ABORTED and "DeathTest" in case
        if done.returncode != 1 and not is_lost_child or "FAILED" in done.stdout:
            break
        if is_lost_child:
            print(f"{case}: its parent aborted (try {attempt} of {TRIES})", flush=True)
    return said or None


def passed_together(command: list[str], chosen: str) -> set[str]:
    try:
        said = subprocess.run([*command, f"--gtest_filter={chosen}"], capture_output=True,
                              text=True, errors="replace",
                              timeout=150).stdout
    except subprocess.TimeoutExpired:
        return set()
    # A case that is skipped has such a line too.
    return set(re.findall(r"^\[ +(?:OK|SKIPPED) \] (\S+?)(?:, where .*)? \(\d+ ms\)", said,
                          re.MULTILINE))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--windows", type=shlex.split, default=[], metavar="RUNNER")
    parser.add_argument("--filter", default="*")
    parser.add_argument("--together", action="store_true",
                        help="first try all cases in one process")
    arguments = parser.parse_args()
    command = [*arguments.windows, arguments.program]
    found = cases(command, arguments.filter)
    passed = passed_together(command, arguments.filter) if arguments.together else set()
    left = [case for case in found if case not in passed]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        failed = [said for said in pool.map(lambda case: failure(command, case), left) if said]
    print("\n".join(failed
                    + [f"{len(found)} cases, {len(left)} of them alone, {len(failed)} failed"]))
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
