#!/usr/bin/env python3
"""Makes every mistake of the table in docs/hardening.md under every option there, and compares the
results.

    tests/hardening/table.py --library build/libloam.so --program MATRIX [--show]

A cell promises one result for all sizes of its row: `report` (a line, then abort), `fault` (the
system ends the process at the access, after a line if the address is the heap's), `noticed` (one of
the two), or "-". The last promises nothing, and at least one size must go unnoticed, so that the
table understates nothing. In the column `sample` the mistake is made 200,000 times, with two sizes;
its "-" is not tried.

--show prints the measured table, with "mixed" if sizes differ. --windows RUNNER starts a Windows
program, which contains the heap, by that command. It tries the short form, with one size of each
row, without options and with all. Exit status: 0 all cells hold, 1 one does not.
"""
from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "hardening.md"
BEGIN, END = "<!-- tests/hardening/table.py: begin -->", "<!-- tests/hardening/table.py: end -->"
SIZES = {"S": (1, 8, 24, 100, 1000, 5000), "L": (40_000, 300_000, 3 << 20, 40 << 20), "-": (0,)}
NAMES = {"S": "up to 32 KiB", "L": "larger", "-": "any"}
OPTIONS = {
    "no option": {}, "`full`": {"LOAM_CHECK_FREE": "full"},
    **{f"`{name}`": {"LOAM_HARDEN": name}
       for name in ("canary", "quarantine", "guards", "all", "sample")},
}
SAMPLED = "`sample`"
# about forty samples; half of the blocks end at the end of their page, and half begin at its start
TIMES = 200_000
SAMPLED_SIZES = (1008, 24)
# Windows has no such calls, and its operators with a size end in those without
# (src/api/windows_new.cpp).
NOT_ON_WINDOWS = ("free_sized", "malloc_usable_size", "operator delete with a size")
# The exit statuses of Windows: abort(), and an access violation, of which Wine passes on one byte.
WINDOWS_ABORT, WINDOWS_FAULT = 3, (5, 0xC0000005)


def outcome(arguments: argparse.Namespace, mistake: str, size: int, option: str,
            times: int = 1) -> str:
    """The result of one mistake: report, fault, or -."""
    if arguments.windows is not None:
        environment, abort, faults = {**os.environ, **OPTIONS[option]}, WINDOWS_ABORT, WINDOWS_FAULT
    else:
        environment = {"PATH": os.environ.get("PATH", ""), "LD_PRELOAD": str(arguments.library),
                       **OPTIONS[option]}
        abort, faults = -signal.SIGABRT, (-signal.SIGSEGV,)
    done = subprocess.run([*(arguments.windows or []), arguments.program, mistake, str(size),
                           str(times)], env=environment,
                          capture_output=True, text=True, errors="replace", timeout=600)
    if done.returncode == abort and done.stderr.startswith(
        "loam: ") and done.stderr.count("\n") == 1:
        return "report"
    if done.returncode in faults:
        return "fault"
    if done.returncode == 0 and not done.stderr:
        return "-"
    return f"status {done.returncode}, {done.stderr!r}"


def found(arguments: argparse.Namespace, mistake: str, kind: str, option: str) -> list[str]:
    if option == SAMPLED:
        return [outcome(arguments, mistake, size, option, TIMES) for size in SAMPLED_SIZES]
    sizes = SIZES[kind][-2:-1] or SIZES[kind] if arguments.windows is not None else SIZES[kind]
    return [outcome(arguments, mistake, size, option) for size in sizes]


def holds(promise: str, outcomes: list[str]) -> bool:
    if promise == "-":
        return "-" in outcomes and set(outcomes) <= {"-", "report", "fault"}
    allowed = {"report", "fault"} if promise == "noticed" else {promise}
    return set(outcomes) <= allowed


def in_short(outcomes: list[str]) -> str:
    kinds = set(outcomes)
    if len(kinds) == 1:
        return kinds.pop()
    return "noticed" if kinds == {"report", "fault"} else "mixed: " + "/".join(outcomes)


def rows_of_document() -> dict[tuple[str, str], dict[str, str]]:
    table = DOCUMENT.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {(row[0], row[1]): dict(zip(cells[0][2:], row[2:])) for row in cells[2:]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--library", type=Path)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--show", action="store_true", help="print what is found")
    parser.add_argument("--windows", type=shlex.split, metavar="RUNNER",
                        help="runs a program for Windows; may be empty")
    arguments = parser.parse_args()
    if arguments.windows is None and arguments.library is None:
        parser.error("give --library, or --windows for a program that has the heap in it")
    listed = subprocess.run([*(arguments.windows or []), arguments.program, "list"],
                            capture_output=True, text=True,
                            check=True).stdout
    kinds = [(name, kind) for name,
             sizes in (line.split("\t") for line in listed.splitlines()) for kind in sizes]
    with ThreadPoolExecutor(2) as pool:
        if arguments.show:
            for name, kind in kinds:
                cells = [in_short(c) for c in pool.map(lambda o: found(arguments, name, kind, o),
                                                       [o for o in OPTIONS if o != SAMPLED])]
                print(f"| {name} | {NAMES[kind]} | " + " | ".join(cells) + " |", flush=True)
            return 0
        promised = rows_of_document()
        wrong = [f"the document has no row for {name!r}, {NAMES[kind]}" for name, kind in kinds
                 if (name, NAMES[kind]) not in promised]
        wrong += [f"no mistake is called {row!r}" for row in promised
                  if row not in [(n, NAMES[k]) for n, k in kinds]]
        tries = [(name, kind, option, promised[name, NAMES[kind]].get(option, "no such column"))
                 for name, kind in kinds
                 if (name, NAMES[kind]) in promised for option in OPTIONS]
        tries = [t for t in tries if t[2] != SAMPLED or t[3] != "-"]
        if arguments.windows is not None:  # "-" of only one size means nothing
            tries = [t for t in tries if not t[0].startswith(NOT_ON_WINDOWS)
                     and t[2] in ("no option", "`all`") and t[3] != "-"]
        outcomes = list(pool.map(lambda t: found(arguments, *t[:3]), tries))
    noticed = {option: [0, 0] for option in OPTIONS if option != SAMPLED}
    for (name, kind, option, promise), what in zip(tries, outcomes):
        if option in noticed and arguments.windows is None:
            noticed[option][0] += sum(one != "-" for one in what)
            noticed[option][1] += len(what)
        if not holds(promise, what):
            wrong.append(f"{name}, {NAMES[kind]}, {option}: promised {promise}, found "
                         f"{in_short(what)}")
    if arguments.windows is None:
        print("noticed: " + ", ".join(f"{option} {some} of {of}" for option,
                                      (some, of) in noticed.items()))
    print("\n".join(wrong) or f"{len(tries)} cells hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
