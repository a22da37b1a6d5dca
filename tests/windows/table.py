#!/usr/bin/env python3
"""Makes the table of docs/portability.md that says which tests of Linux run under Wine, from the
sources.

    tests/windows/table.py            0: the table is right, 1: it is not
    tests/windows/table.py --write    writes it
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "portability.md"
BEGIN, END = "<!-- tests/windows/table.py: begin -->", "<!-- tests/windows/table.py: end -->"
CASE = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\) \{\n(.*)$", re.M)
SKIPS = {"os::kChargesCommit": "Windows has no huge pages, and commits a block at a time",
         "test::kCanFork": "there is no `fork()`",
         "test::kKeysEndFirst": "a key's destructor runs before the heap's hook",
         "test::kTellsSleep": "the system does not tell whether a thread sleeps",
         "test::kHasShell": "there is no shell that would start the generator of a table",
         "os::barrier_all_threads": "caches of private heaps need a barrier that Wine has not"}
# Files of tests/unit that CMakeLists.txt leaves out, and the reasons.
LEFT_OUT = {"linux_test": "Linux's own port; `tests/windows/memory.cpp` is Windows'",
            "fork_test": "there is no `fork()`",
            "recording_test": "a live process is recorded on Linux only"}

LEFT_OUT_OF_HEAPS = ("Idea25DestroyLeaksNoMapping", "Idea25TrimLowersResidentMemory",
                     "AThreadThatEndsLeavesALockedHeapAsItIs")


def cases(path: Path) -> list[tuple[str, str]]:
    """The cases of a file: their names, and the first line of each."""
    return [(f"{suite}.{name}", line) for suite, name, line in CASE.findall(path.read_text())]


def unit() -> str:
    listed = re.search(r'LOAM_UNIT_LINUX_ONLY "([^"]*)"',
                       (ROOT / "tests/windows/CMakeLists.txt").read_text())[1]
    if set(listed.split("|")) != LEFT_OUT.keys():
        sys.exit(f"tests/windows/table.py knows no reason for one of: {listed}")
    every, run, missing = 0, 0, []
    for path in sorted((ROOT / "tests/unit").glob("*/*_test.cpp")):
        found = cases(path)
        every += len(found)
        if path.stem in LEFT_OUT:
            missing.append(f"`{path.name}`: {LEFT_OUT[path.stem]}")
            continue
        skipped = [name for name, line in found if any(skip in line for skip in SKIPS)]
        run += len(found) - len(skipped)
    for skip, why in SKIPS.items():
        count = sum(skip in line for path in (ROOT / "tests/unit").glob("*/*.cpp") for _,
                    line in cases(path))
        if count == 0:
            continue
        missing.append(f"{count} {'case' if count == 1 else 'cases'}: {why}")
    return f"| `tests/unit` | {run} of {every} cases | {'; '.join(missing)} |"


def heaps() -> str:
    listed = (ROOT / "tests/windows/CMakeLists.txt").read_text()
    if missing := [name for name in LEFT_OUT_OF_HEAPS if f"*.{name}" not in listed]:
        sys.exit(f"tests/windows/CMakeLists.txt does not leave out {missing}")
    every = sum(len(cases(path)) for path in (ROOT / "tests/heaps").glob("*_test.cpp"))
    win32, crt = (len(cases(ROOT / f"tests/heaps/{name}_test.cpp")) for name in ("win32", "crt"))
    run = every - win32 - crt - len(LEFT_OUT_OF_HEAPS)
    return (f"| `tests/heaps` | {run} of {every} cases through `<loam/loam.h>`, `every_call`, "
            f"`threads` | "
            f"2 cases count mappings and resident memory in `/proc`; 1 is about caches of private "
            f"heaps, which need a barrier "
            f"that Wine has not; {win32} and all through `<loam/win32.h>` meet the system's heap "
            f"([there](windows.md#wines-own-heap)); {crt} of the C run-time's functions, which "
            f"share `malloc`'s heap here: "
            "`tests/windows/override.cpp`; `lock_and_fork`: there is no `fork()` |")


def cxx() -> str:
    every = sum(len(cases(path)) for path in (ROOT / "tests/cxx").glob("*_test.cpp"))
    return (f"| `tests/cxx` | {every} cases with `libloam.a`, {every - 1} with `loam.dll` | 1 case "
            f"with `loam.dll`, which replaces no "
            "`malloc`; the headers each by itself, the document's examples, a program without "
            "exceptions |")


def rows() -> str:
    return "\n".join((
        "| Tests | Under Wine | Not under Wine |", "|---|---|---|", unit(), heaps(),
        "| `tests/stress` | `stress`, `stress_heaps`, `stress_large_resizes`, in short form | "
        "forks; a limit of address space; "
        "allocations of ending threads, whose variables gcc 12 frees too early |",
        "| `tests/hardening` | `walk`, `structure`, the table of mistakes with one size of each "
        "row, without options and with "
        "`all` | `mistakes`: it forks; `secure`, `publish`: users and folders of Linux |",
        cxx(),
        "| `tests/preload`, others | | preloading, signals, `fork()`; `tests/windows` has Windows' "
        "own |"))


def main() -> int:
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    wanted = f"{before}{BEGIN}\n{rows()}\n{END}{after}"
    if sys.argv[1:] == ["--write"]:
        DOCUMENT.write_text(wanted)
    elif text != wanted:
        print(f"{DOCUMENT.relative_to(ROOT)} is stale: run tests/windows/table.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
