#!/usr/bin/env python3
"""Compares the tables of options.md and tuning.md with the sources: options, defaults and meanings
with kOptions; every constant's value with its definition. Each constant whose comment says that it
was chosen or measured has a row, or is computed from one that has and whose row names it. A row has
no such constant, and none that is a bound or the default of an option.

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
NO_ROW = re.compile(r"\b(Bound|Default):")
NAME = re.compile(r"\bk[A-Z]\w*")

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


def described_constants(text: str) -> list[tuple[str, str, str, str]]:
    """Names of the constants, each with its value, the comment right above or beside it, and the
    comment above the constants that follow each other up to it."""
    found = []
    comment = group = ""
    for line in text.splitlines():
        if line.strip().startswith("//"):
            comment += line
        elif definition := CONSTANT.match(line):
            comment += line.partition("//")[2]
            group = comment or group
            found.append((definition.group(1) or definition.group(2),
                          line[definition.end() - 1:], comment, group))
            comment = ""
        else:
            comment = group = ""
    return found


def check_table(root: Path, table: list[list[str]]) -> list[str]:
    """Which constants of the sources have a row, and which have none."""
    errors = []
    with_row = {(row[0], row[1]) for row in table}
    tabled = {row[0]: row[3] for row in table}
    errors += [f"docs/tuning.md: {name} of {file} is a default: its header has it"
               for name, file in sorted(with_row)
               if file.startswith("include/") and not NAME.fullmatch(name)]
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        file = str(path.relative_to(root))
        for name, value, comment, group in described_constants(path.read_text()):
            where = f"docs/tuning.md: {name} of {file}"
            tuned, no_row = EVIDENCE.search(comment), NO_ROW.search(group)
            has_row = (name, file) in with_row
            bases = [base for base in NAME.findall(value) if base in tabled and base != name]
            if no_row and (has_row or tuned):
                errors.append(f"{where} is a {no_row.group(1).lower()}: it has no row, and was not "
                              "chosen or measured")
            elif bases and has_row:
                errors.append(f"{where} is computed from {bases[0]}, whose row says what follows")
            elif bases and tuned and not any(name in NAME.findall(tabled[base]) for base in bases):
                errors.append(f"{where} is computed from {bases[0]}, whose row does not name it")
            elif tuned and not bases and not has_row:
                errors.append(f"docs/tuning.md: lacks {name} of {file}, whose comment says that it "
                              "was chosen or measured")
    return errors


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
    return errors + check_table(root, table)


def self_test() -> int:
    row = "| `{}` | `src/a.h` | `{}` | what it is | chosen |\n"
    good = {
        "docs/tuning.md": row.format("kFirst", "4") + row.format("kSecond", "8")
        + row.format("kThird", "2"),
        "src/a.h": "// What. Chosen:\n// so.\nconstexpr int kFirst = 4;\n/// Measured.\nconstexpr "
                   "int kSecond{8};\n"
                   "constexpr int kDerived = kFirst * 2;\nenum {\n  kThird = 2,  // measured\n};\n"
                   "// Bound: so many.\nconstexpr int kBound = 3;\nconstexpr int kNext = 5;\n",
    }
    source = good["src/a.h"]
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
        "a computed constant with a row": (good["docs/tuning.md"]
                                           + row.format("kDerived", "kFirst * 2"), "is computed"),
        "a bound with a row": (good["docs/tuning.md"] + row.format("kBound", "3"), "is a bound"),
        "the next bound with a row": (good["docs/tuning.md"] + row.format("kNext", "5"),
                                      "is a bound"),
    }
    broken_sources = {
        "a computed constant that no row names": (
            source.replace("constexpr int kDerived", "// Chosen.\nconstexpr int kDerived"),
            "does not name it"),
        "a bound that was chosen": (source.replace("so many", "chosen"), "is a bound"),
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
        for name, (text, words) in broken_sources.items():
            errors = errors_of({**good, "src/a.h": text})
            if len(errors) != 1 or words not in errors[0]:
                failures.append(f"{name}: wanted '{words}', got {errors}")
        (Path(temporary) / "include").mkdir()
        default = row.replace("src", "include").format("first", "1")
        errors = errors_of({**good, "docs/tuning.md": good["docs/tuning.md"] + default,
                            "include/a.h": "int first = 1;"})
        if len(errors) != 1 or "is a default" not in errors[0]:
            failures.append(f"a default with a row: got {errors}")
    total = len(broken) + len(broken_sources) + 2
    for failure in failures:
        print(failure)
    print(f"check_options self-test: {total - len(failures)} as wanted, {len(failures)} "
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
