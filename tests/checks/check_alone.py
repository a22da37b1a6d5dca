#!/usr/bin/env python3
"""Tests that measure run alone: a test that reads its own resident memory or counts its page faults
has RUN_SERIAL, so that no other test runs beside it.

    tests/checks/check_alone.py BUILD      the tests of that build folder
    tests/checks/check_alone.py --self-test

A whole program measures if one of its sources calls one of MEASURES. Of a gtest program, those
cases measure that call one. compile_commands.json names a program's sources, and ctest's own list
its tests.
"""
from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

MEASURES = re.compile(r"\b(resident_kib|resident_bytes|minor_faults)\(|VmHWM|smaps|ru_minflt")
# The tests with these labels measure in scripts.
LABELS = {"gates", "startup"}
CASE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),\s*(\w+)\)", re.MULTILINE)
# These tests run on the pretended system, which no other test shares.
PRETENDED = '#include "fake_system/'


def measuring_cases(text: str) -> list[str]:
    """Names of the gtest cases whose body measures."""
    # A body ends with the first brace in the first column. A helper may follow it.
    bodies = {case.group(2): text[case.end():].partition("\n}")[0] for case in CASE.finditer(text)}
    return [name for name, body in bodies.items() if MEASURES.search(body)]


def find_faults(tests: list[dict], sources: dict[str, list[str]]) -> list[str]:
    """`sources`: for each program's name, the texts of its source files."""
    faults = []
    for test in tests:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        program = Path(test.get("command", [""])[0]).name
        measures = bool(LABELS & set(properties.get("LABELS", [])))
        for text in sources.get(program, []):
            if PRETENDED in text:
                continue
            if CASE.search(text):
                # The name of a parameterised case has a suffix.
                is_whole = "--gtest_shuffle" in test.get("command", [])
                measures |= is_whole and bool(measuring_cases(text))
                measures |= any(re.search(rf"\.{case}(?:[/<]|$)", test["name"])
                                for case in measuring_cases(text))
            else:
                measures |= bool(MEASURES.search(text))
        if measures and not properties.get("RUN_SERIAL"):
            faults.append(f"{test['name']}: measures memory or faults, and has no RUN_SERIAL")
    return faults


def sources_by_program(build: Path) -> dict[str, list[str]]:
    sources: dict[str, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        # CMake below 3.26 names the output only in the command.
        output = entry.get("output") or entry["command"]
        if match := re.search(r"tests/\S*CMakeFiles/([^/\s]+)\.dir/", output):
            path = Path(entry["file"])
            if path.is_file() and "/tests/" in str(path):
                text = path.read_text(errors="replace")
                sources.setdefault(match.group(1), []).append(text)
    return sources


def self_test() -> int:
    whole = "int main(void) { return resident_kib() > 5; }"
    cases = ("TEST(Heap, Measures) {\n  minor_faults();\n}\nTEST(Heap, Other) {\n  f();\n}\n"
             "long minor_faults() {\n}\n")

    def test(name: str, program: str, **properties: object) -> dict:
        return {"name": name, "command": [f"/b/{program}"],
                "properties": [{"name": key, "value": value} for key, value in properties.items()]}

    sources = {"whole": [whole], "cases": [cases], "pretended": [PRETENDED + cases]}
    planted = [test("preload.whole", "whole"), test("unit.Heap.Measures", "cases"),
               test("heaps.Heap/0.Measures<int>", "cases"),
               test("unit.whole", "cases") | {"command": ["/b/cases", "--gtest_shuffle"]},
               test("gates.x", "python3", LABELS=["gates"])]
    right = [test("preload.whole", "whole", RUN_SERIAL=True), test("unit.Heap.Other", "cases"),
             test("unit.Heap.Measures", "pretended"), test("other", "unknown")]
    found = find_faults(planted, sources)
    if len(found) != len(planted) or find_faults(right, sources):
        print(f"self-test: found {found} in {len(planted)} faults, "
              f"{find_faults(right, sources)} in what is right")
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", nargs="?", type=Path)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    if arguments.build is None:
        parser.error("BUILD, the folder that CMake wrote, is missing")
    listing = subprocess.run(["ctest", "--test-dir", arguments.build, "--show-only=json-v1"],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
    tests = json.loads(listing)["tests"]
    alone = sum(any(entry["name"] == "RUN_SERIAL" for entry in test.get("properties", []))
                for test in tests)
    sources = sources_by_program(arguments.build)
    programs = {Path(test.get("command", [""])[0]).name for test in tests}
    if not programs & sources.keys():
        print(f"{arguments.build}/compile_commands.json: the source of no test's program is in it")
        return 1
    faults = find_faults(tests, sources)
    for fault in faults:
        print(fault)
    print(f"{len(tests)} tests, {alone} of them alone, {len(faults)} that should be")
    return 1 if faults or alone == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
