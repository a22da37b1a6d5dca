"""What a run prints and writes: lines for people, JSON for programs, the page of results."""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys

from .model import Case, ConformanceError, Result, Run, Status, Verdict

DOCS = "tests/conformance/results.md"
REMAKE = "tests/conformance/run --write-docs"
FORMAT_VERSION = 1

HEADER = """\
<!-- Written by tests/conformance/run --write-docs; do not edit. -->

# Conformance

Tests that other projects wrote for their own allocators, and that ask nothing but what the C and
C++ standards, POSIX and the C library promise, run with `libloam.so` preloaded. None of their code
is in this repository: `tests/conformance/run` brings it from the package registries, compiles it
against small shim headers of ours, and runs each test as a case of its own under CTest.

A test that fails is run once more without the library. If it fails there as well, the shim, the
machine or the test is at fault, and it is reported as broken instead of as a failure of the heap.
[README.md](README.md) says how to run and extend the suites. Bug reports that users of
other allocators published were tried as well: [each has a test](reports/README.md).
"""


def cell(run: Run) -> str:
    """A run in a few words that are true on any machine."""
    if run.status is Status.PASS:
        checks = f" ({run.passed} checks)" if run.passed > 1 else ""
        return f"pass{checks}"
    if run.failed:
        shown = ", ".join(f"`{name}`" for name in run.failed)
        before = "" if run.status is Status.FAIL else f"{run.status.value}; "
        return f"**{before}fails** {shown}"
    if run.status is Status.CRASH:
        return f"**crash** ({run.detail.split(':')[0]})"
    if run.status is Status.TIMEOUT:
        return "**hangs**"
    return "**fails**" if run.status is Status.FAIL else "not run"


WORDS = {
    Verdict.PASS: "pass",
    Verdict.FAIL: "FAIL",
    Verdict.DIFFERS: "differs",
    Verdict.BROKEN: "BROKEN",
}


def print_result(result: Result, peers: dict[str, Run], verbose: bool) -> None:
    line = f"{WORDS[result.verdict]:8} {result.case.full_name:32} {result.run.seconds:7.2f} s"
    if result.run.passed:
        line += f"  {result.run.passed} checks"
    if result.run.skipped:
        line += f", {result.run.skipped} do not apply"
    if not result.run.ok:
        line += f"  {result.run.detail}"
    print(line, flush=True)
    if result.control is not None:
        print(f"         {'system':32} {result.control.seconds:7.2f} s  "
              f"{result.control.detail or 'pass'}")
    for name, run in peers.items():
        print(f"         {name:32} {run.seconds:7.2f} s  {run.detail or 'pass'}")
    if result.verdict is Verdict.BROKEN:
        print("         It fails under the system's malloc as well: look at the shim, the suite's "
              "version and this machine first.")
    if verbose and not result.run.ok:
        print("--- end of its output under the library")
        print(result.run.output)
        print("---")
    sys.stdout.flush()


def print_summary(results: list[Result], served: dict[str, bool]) -> None:
    def count(verdict: Verdict) -> int:
        return sum(result.verdict is verdict for result in results)

    absent = [name for name, ours in served.items() if not ours]
    if absent:
        print(f"The library leaves to others: {', '.join(absent)}")
    print(f"{count(Verdict.PASS)} pass, {count(Verdict.FAIL)} fail, "
          f"{count(Verdict.DIFFERS)} differ (reported only), {count(Verdict.BROKEN)} broken")


def _run_json(run: Run | None):
    if run is None:
        return None
    return {
        "status": run.status.value, "detail": run.detail, "seconds": round(run.seconds, 3),
        "checks_passed": run.passed, "checks_failed": list(run.failed),
        "checks_skipped": run.skipped, "cell": cell(run),
    }


def document(options, versions, served, results, peer_runs):
    """The whole run as data; the docs are made from this alone."""
    return {
        "version": FORMAT_VERSION,
        "form": "full" if options.full else "short",
        "system": os.confstr("CS_GNU_LIBC_VERSION") or "unknown C library",
        "suites": versions,
        "served": {name: functions for name, functions in served.items()},
        "tests": [
            {
                "suite": result.case.suite,
                "name": result.case.name,
                "gates": result.case.gates,
                "verdict": result.verdict.value,
                "run": _run_json(result.run),
                "control": _run_json(result.control),
                "peers": {name: _run_json(run) for name, run in peers.items()},
            }
            for result, peers in zip(results, peer_runs)
        ],
    }


def write_json(path: pathlib.Path, data) -> None:
    text = json.dumps(data, indent=1) + "\n"
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise ConformanceError(f"cannot write {path}: {error.strerror}") from error


def take_other_columns(data, path: pathlib.Path) -> None:
    """Fills in the system's and the peers' runs from the results of an earlier run."""
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConformanceError(f"there is no {path} to reuse: leave out --reuse") from error
    if earlier.get("version") != FORMAT_VERSION or earlier.get("suites") != data["suites"]:
        raise ConformanceError(f"{path} is of other suites or another format: leave out --reuse")
    tests = {(test["suite"], test["name"]): test for test in earlier["tests"]}
    for test in data["tests"]:
        before = tests.get((test["suite"], test["name"]))
        if before is None:
            raise ConformanceError(f"{path} lacks {test['name']}: leave out --reuse")
        test["control"], test["peers"] = before["control"], before["peers"]
    data["served"] = earlier["served"] | {"": data["served"][""]}


def _row_start(case: Case) -> str:
    """The part of a table row that follows from the list of tests alone."""
    checks = case.checks
    if case.note:
        checks += f". *{case.note[0].upper()}{case.note[1:]}*"
    gates = "" if case.gates else " (reported only)"
    return f"| `{case.name}`{gates} | {checks} |"


def render(suites, data) -> str:
    tests = {f"{test['suite']}/{test['name']}": test for test in data["tests"]}
    peers = [name for name in data["served"] if name]
    lines = [HEADER]
    gating = [test for test in data["tests"] if test["gates"]]
    passed = sum(test["verdict"] == "pass" for test in gating)
    lines.append(f"Loam passes {passed} of the {len(gating)} tests that gate ({data['form']} form; "
                 f"*system* is {data['system']}).")
    absent = [name for name, ours in data["served"][""].items() if not ours]
    if absent:
        lines.append(f"The library leaves to the C library: {', '.join(f'`{n}`' for n in absent)}.")
    else:
        lines.append(f"It serves all {len(data['served'][''])} functions of the allocation family, "
                     "every form of `operator new` and `delete` among them.")
    for peer in peers:
        absent = [f"`{name}`" for name, theirs in data["served"][peer].items()
                  if not theirs and not name.startswith("_Z")]
        if absent:
            lines.append(f"{peer}, for comparison, leaves {', '.join(absent)} to the C library, "
                         "and fails where a test mixes them with its own.")
    for name, suite in suites.ALL.items():
        lines += ["", f"## {suite.TITLE}", "", f"{suite.SOURCE}, {data['suites'][name]}.", ""]
        columns = ["Test", "What it verifies", "Loam", "system", *peers]
        lines.append(f"| {' | '.join(columns)} |")
        lines.append("|" + "---|" * len(columns))
        for case in suite.CASES:
            test = tests[case.full_name]
            cells = [test["run"]["cell"], (test["control"] or {"cell": "not run"})["cell"]]
            cells += [test["peers"][peer]["cell"] for peer in peers]
            lines.append(f"{_row_start(case)} {' | '.join(cells)} |")
        left_out = getattr(suite, "LEFT_OUT", ())
        if left_out:
            reasons = "; ".join(f"{what} ({why})" for what, why in left_out)
            lines += ["", f"Left out: {reasons}."]
    return "\n".join(lines) + "\n"


def write_docs(root: pathlib.Path, suites, data) -> None:
    path = root / DOCS
    path.parent.mkdir(exist_ok=True)
    path.write_text(render(suites, data), encoding="utf-8")
    print(f"wrote {DOCS}")


def _documented_rows(root: pathlib.Path) -> dict[str, str]:
    path = root / DOCS
    if not path.is_file():
        raise ConformanceError(f"there is no {DOCS}; make it with {REMAKE}")
    rows, titles = {}, ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            titles = line[3:]
        match = re.match(r"\| `([^`]+)`", line)
        if match:
            rows[f"{titles}/{match[1]}"] = line
    return rows


def check_docs(root: pathlib.Path, suites) -> None:
    """The table must have a row, with today's text, for each test and for nothing else."""
    rows = _documented_rows(root)
    wrong = []
    expected = set()
    for suite in suites.ALL.values():
        for case in suite.CASES:
            key = f"{suite.TITLE}/{case.name}"
            expected.add(key)
            if key not in rows:
                wrong.append(f"{case.full_name} has no row")
            elif not rows[key].startswith(_row_start(case)):
                wrong.append(f"the row of {case.full_name} says something else about it")
    wrong += [f"a row names {key}, which is no test" for key in sorted(set(rows) - expected)]
    if wrong:
        raise ConformanceError(
            f"{DOCS} is out of date: {'; '.join(wrong[:5])}. Remake it with {REMAKE}"
        )
    print(f"{DOCS} has a row for each of the {len(expected)} tests")


def documented_pass(root: pathlib.Path, suites, case: Case) -> bool | None:
    """Whether the docs say that Loam passes the case; None if they do not describe it."""
    row = _documented_rows(root).get(f"{suites.ALL[case.suite].TITLE}/{case.name}")
    if row is None or not row.startswith(_row_start(case)):
        return None
    return row[len(_row_start(case)):].strip().startswith("pass")
