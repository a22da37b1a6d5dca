#!/usr/bin/env python3
"""Compares the tables of options.md and tuning.md with the sources: options, defaults and meanings
with kOptions; every constant's value with its definition, and each constant whose comment says that
it was chosen or measured has a row.

    docs/check_options.py
    docs/check_options.py --self-test

Exit status: 0 they agree, 1 they do not (each difference on a line of its own).
"""
import argparse
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/heap/options.h"
MOST_OPTIONS = 12  # more choices do not help

CONSTANT = re.compile(r"^\s*(?:(?:static|inline)\s+)*constexpr\s+[\w:<>\s*]*?\b(k[A-Z]\w*)\s*[={[]"
                      r"|^\s*(k[A-Z]\w*)\s*=[^=]")
EVIDENCE = re.compile(r"\b(?:chosen|measured)\b", re.I)

OPTION = re.compile(r'\{"(\w+)",\s*"([^"]*)",\s*"([^"]*)",\s*((?:"[^"]*"\s*)+)\}')


def rows(document: str, columns: int, root: Path = ROOT) -> list[list[str]]:
    """The table rows of so many columns whose first cell is code, with the backticks taken off."""
    found = []
    for line in (root / "docs" / document).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == columns:
            found.append([cell.replace("`", "") for cell in cells])
    return found


def check_options() -> list[str]:
    text = (ROOT / SOURCE).read_text()
    wanted = {}
    for name, values, initial, meaning in OPTION.findall(text):
        wanted[name] = [", ".join(values.split("|")), initial,
                        "".join(re.findall('"([^"]*)"', meaning))]
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


def tuned_constants(text: str) -> list[str]:
    """Names of the constants whose comment, right above or beside, says where the value comes
    from."""
    found = []
    comment = ""
    for line in text.splitlines():
        if line.strip().startswith("//"):
            comment += line
            continue
        comment += line.partition("//")[2]
        if (definition := CONSTANT.match(line)) and EVIDENCE.search(comment):
            found.append(definition.group(1) or definition.group(2))
        comment = ""
    return found


def check_constants(root: Path = ROOT) -> list[str]:
    errors = []
    table = rows("tuning.md", 5, root)
    if not table:
        errors.append("docs/tuning.md: no table of constants was found")
    for name, file, value, *_ in table:
        path = root / file
        if not path.is_file():
            errors.append(f"docs/tuning.md: {name}: {file} does not exist")
            continue
        found = re.search(rf"\b{name}\s*(?:=\s*([^;#\n]+?)\s*(?:;|#|,?\s*//|,?$)|\{{([^}}]*)\}};)",
                          path.read_text(), re.M)
        if not found:
            errors.append(f"docs/tuning.md: {name} is not defined in {file}")
        elif (actual := found.group(1) or found.group(2)) != value:
            errors.append(f"docs/tuning.md: {name} is {actual} in {file}, not {value}")
    documented = {(row[0], row[1]) for row in table}
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in {".h", ".cpp"}:
            file = str(path.relative_to(root))
            errors += [f"docs/tuning.md: lacks {name} of {file}, whose comment says that it was "
                       "chosen or measured"
                       for name in tuned_constants(path.read_text())
                       if (name, file) not in documented]
    return errors


def self_test() -> int:
    row = "| `{}` | `src/a.h` | `{}` | what it is | chosen |\n"
    good = {
        "docs/tuning.md": row.format("kFirst", "4") + row.format("kSecond", "8")
        + row.format("kThird", "2"),
        "src/a.h": "// What. Chosen:\n// so.\nconstexpr int kFirst = 4;\n/// Measured.\nconstexpr "
                   "int kSecond{8};\n"
                   "constexpr int kDerived = kFirst * 2;\nenum {\n  kThird = 2,  // measured\n};\n",
    }
    lacks = "docs/tuning.md: lacks"
    broken = {
        "a constant without a row": (row.format("kSecond", "8") + row.format("kThird", "2"), lacks),
        "another constant without a row": (row.format("kFirst", "4") + row.format("kThird", "2"),
                                           lacks),
        "a constant with a comment beside it": (row.format("kFirst", "4")
                                                + row.format("kSecond", "8"), lacks),
        "another value": (good["docs/tuning.md"].replace("`4`", "`5`"), "kFirst is 4"),
        "a row without a constant": (good["docs/tuning.md"] + row.format("kGone", "1"),
                                     "is not defined"),
    }
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        def errors_of(files: dict[str, str]) -> list[str]:
            for name, text in files.items():
                path = Path(temporary) / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            return check_constants(Path(temporary))

        if errors := errors_of(good):
            failures.append(f"what is in order is refused: {errors}")
        for name, (table, words) in broken.items():
            errors = errors_of({**good, "docs/tuning.md": table})
            if len(errors) != 1 or words not in errors[0]:
                failures.append(f"{name}: wanted '{words}', got {errors}")
    for failure in failures:
        print(failure)
    print(f"check_options self-test: {len(broken) + 1 - len(failures)} as wanted, {len(failures)} "
          f"not")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--self-test", action="store_true", help="prove that each rule can fail")
    if parser.parse_args().self_test:
        return self_test()
    errors = check_options() + check_constants()
    for error in errors:
        print(error)
    print(f"check_options: {len(errors)} found" if errors else "check_options: in order")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
