#!/usr/bin/env python3
"""Compares the tables of options.md and tuning.md with the sources: options, defaults and meanings
with kOptions; every constant's value with its definition.

    docs/check_options.py

Exit status: 0 they agree, 1 they do not (each difference on a line of its own).
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/heap/options.h"
MOST_OPTIONS = 12  # more choices than this help nobody

OPTION = re.compile(r'\{"(\w+)",\s*"([^"]*)",\s*"([^"]*)",\s*((?:"[^"]*"\s*)+)\}')


def rows(document: str, columns: int) -> list[list[str]]:
    """The table rows of so many columns whose first cell is code, with the backticks taken off."""
    found = []
    for line in (ROOT / "docs" / document).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == columns:
            found.append([cell.replace("`", "") for cell in cells])
    return found


def check_options() -> list[str]:
    text = (ROOT / SOURCE).read_text()
    wanted = {}
    for name, values, initial, meaning in OPTION.findall(text):
        wanted[name] = [", ".join(values.split("|")), initial, "".join(re.findall('"([^"]*)"', meaning))]
    errors = []
    if not wanted or len(wanted) != text.count('{"'):
        errors.append(f"{SOURCE}: kOptions is not laid out as this check reads it")
    if len(wanted) > MOST_OPTIONS:
        errors.append(f"{SOURCE}: {len(wanted)} options; {MOST_OPTIONS} is the limit")
    documented = {row[0]: row[1:] for row in rows("options.md", 4)}
    for name in sorted(wanted.keys() | documented.keys()):
        if name not in documented:
            errors.append(f"docs/options.md: lacks {name}: | {' | '.join([name, *wanted[name]])} |")
        elif name not in wanted:
            errors.append(f"docs/options.md: {name} is not in {SOURCE}")
        elif documented[name] != wanted[name]:
            errors.append(f"docs/options.md: {name} should read | {' | '.join(wanted[name])} |")
    return errors


def check_constants() -> list[str]:
    errors = []
    table = rows("tuning.md", 5)
    if not table:
        errors.append("docs/tuning.md: no table of constants was found")
    for name, file, value, *_ in table:
        path = ROOT / file
        if not path.is_file():
            errors.append(f"docs/tuning.md: {name}: {file} does not exist")
            continue
        found = re.search(rf"\b{name}\s*(?:=\s*([^;#\n]+?)\s*(?:;|#|$)|\{{([^}}]*)\}};)",
                          path.read_text(), re.M)
        if not found:
            errors.append(f"docs/tuning.md: {name} is not defined in {file}")
        elif (actual := found.group(1) or found.group(2)) != value:
            errors.append(f"docs/tuning.md: {name} is {actual} in {file}, not {value}")
    return errors


def main() -> int:
    errors = check_options() + check_constants()
    for error in errors:
        print(error)
    print(f"check_options: {len(errors)} found" if errors else "check_options: in order")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
