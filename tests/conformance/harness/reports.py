"""Public bug reports that were tried on the heap, as a page beside them.

One file an item under tests/conformance/reports, each with `[[report]]` tables:

    item       its place in the list, "A1"
    source     the public reports it comes from
    situation  what a program does
    test       the CTest case that shows it, or "cargo: NAME"; several, separated by ", "
    result     what Loam does; links are those of a page in docs/
    others     what other allocators or tools do; "not tried" without a trial
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import tomllib

from .model import ConformanceError

FOLDER = "tests/conformance/reports"
PAGE = f"{FOLDER}/README.md"
REMAKE = "tests/conformance/run --write-reports"
FIELDS = ("item", "source", "situation", "test", "result", "others")
INTRODUCTION = f"""\
<!-- Written by {REMAKE}; do not edit. -->

# Public reports

Bug reports that users of other allocators and tools published, tried on Loam. Each has a test that
failed when the report was first tried. The rows are those of the files beside this page.
"""


def _order(row: dict[str, str]):
    return row["item"][0], int(row["item"][1:])


def read(root: pathlib.Path) -> list[dict[str, str]]:
    rows = []
    for path in sorted((root / FOLDER).glob("*.toml")):
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ConformanceError(f"{path}: {error}") from error
        for row in tables.get("report", []):
            if sorted(row) != sorted(FIELDS):
                raise ConformanceError(f"{path}: a report has the fields {', '.join(FIELDS)}")
            if not re.fullmatch("[A-Z][0-9]+", row["item"]):
                raise ConformanceError(f"{path}: an item is a letter and a number, not "
                                       f"{row['item']}")
            rows.append(row)
    return sorted(rows, key=_order)


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return re.sub(r"\]\((?!https?:)", "](../../../docs/", text)


def page(root: pathlib.Path) -> str:
    lines = [INTRODUCTION, "| Item | Report | Situation | Loam | Others | Test |", "|" + "---|" * 6]
    for row in read(root):
        tests = ", ".join(f"`{name}`" for name in row["test"].split(", "))
        cells = [row[field] for field in ("item", "source", "situation", "result", "others")]
        lines.append("| " + " | ".join([*map(_cell, cells), tests]) + " |")
    return "\n".join(lines) + "\n"


def write(root: pathlib.Path) -> None:
    (root / PAGE).write_text(page(root), encoding="utf-8")
    print(f"wrote {PAGE}")


def _test_names(build: pathlib.Path) -> set[str]:
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True,
                            check=True).stdout
    # The type of a typed test is left out.
    return {name.split("<")[0].strip() for name in re.findall(r"Test +#\d+: (\S.*)", listed)}


def _is_case(root: pathlib.Path, test: str, known: set[str]) -> bool:
    """Whether it is a case of a program that CTest knows as one test: PROGRAM.SUITE.CASE."""
    program, _, rest = test.partition(".")[2].partition(".")
    suite, _, case = rest.partition(".")
    text = re.compile(rf"TEST(_F|_P)?\(\s*{re.escape(suite)},\s*{re.escape(case)}\)")
    return (f"{test.partition('.')[0]}.{program}" in known and
            any(text.search(path.read_text(encoding="utf-8"))
                for path in (root / "tests").glob("unit/*/*.cpp")))


def check(root: pathlib.Path, build: pathlib.Path | None) -> None:
    """The page must be that of the rows, and each test that a row names must exist."""
    rows = read(root)
    if not rows:
        raise ConformanceError(f"there are no reports in {FOLDER}")
    if not (root / PAGE).is_file() or page(root) != (root / PAGE).read_text(encoding="utf-8"):
        raise ConformanceError(f"{PAGE} is out of date: remake it with {REMAKE}")
    known = _test_names(build) if build is not None else None
    rust = "".join(path.read_text(encoding="utf-8")
                   for path in sorted((root / "tool").glob("*/**/*.rs")))
    for row in rows:
        for test in row["test"].split(", "):
            if test.startswith("cargo: "):
                name = test.removeprefix("cargo: ").split("::")[-1]
                if re.search(rf"fn {re.escape(name)}\b", rust) is None:
                    raise ConformanceError(f"{row['item']}: no test in tool/ is called {name}")
            elif known is not None and test not in known and not _is_case(root, test, known):
                raise ConformanceError(f"{row['item']}: CTest knows no test {test}")
    print(f"{PAGE} has the {len(rows)} reports of {FOLDER}")
