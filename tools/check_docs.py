#!/usr/bin/env python3
"""Compares the documents with the tree. Links, anchors, file names, function names and make targets
must exist. `A::b`, in a comment too, must be declared in A. No tracked file may name a machine's
folders or a package registry's host. A version that was written by hand must be that of
include/loam/loam.h. The README and docs/ must stay short, and their lines narrow. A figure of an
experiment must be one of the README's generated table.

    tools/check_docs.py [--root DIR]
    tools/check_docs.py --self-test

Exit status: 0 nothing found, 1 something found.
"""
from __future__ import annotations

import argparse
import posixpath
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import cxx_names

README_LINES = 120
# Of docs/ without decisions and releases. Cut what is said twice before this becomes more.
DOCS_LINES = 5000
DOCS_COLUMNS = 120

CODE_SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".rs", ".py", ".sh", ".cmake", ".toml", ".js", ".json",
                 ".html", ".in", ".md", ".txt", ".map", ".css"}
# The places that may define a name of a document.
NAME_SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".rs", ".py", ".sh", ".cmake", ".js", ".txt", ".map",
                 ""}

# Written in pieces, so that this file passes its own check.
MACHINE_PATHS = re.compile("(?<![\\w./~$}-])/(?:"
                           + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me"])
                           + r")/[\w.]")
REGISTRY_HOSTS = re.compile(r"\b(?:" + "|".join(name.replace("DOT", r"\.") for name in [
    "cratesDOTio", "pypiDOTorg", "pythonhostedDOTorg", "npmjsDOTorg", "npmjsDOTcom",
    "debDOTdebianDOTorg", "securityDOTdebianDOTorg", "snapshotDOTdebianDOTorg",
    "archiveDOTubuntuDOTcom", "proxyDOTgolangDOTorg", "mavenDOTorg"]) + r")\b")
# Cargo writes the name of its default index into every lock file; it is not a choice of this
# project.
CARGO_INDEX = "registry+https://github.com/rust-lang/" + "crates" + ".io-index"

LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# A path in a document, perhaps followed by a line number.
PATH = re.compile(r"^(?:\./)?([\w.+-]+(?:/[\w.+-]+)*/?)(?::\d+)?$")
FUNCTION = re.compile(r"^((?:[A-Za-z_]\w*::)*~?[A-Za-z_]\w*)\((?:[^()]*)\)$")
QUALIFIED = re.compile(r"^((?:[A-Za-z_]\w*::)+~?[A-Za-z_]\w*)$")
# A name inside another one, in any place, but not a part of a path, and not `A::all_*`.
MEMBER = re.compile(r"(?<![\w:~/.])((?:[A-Za-z_]\w*::)+~?[A-Za-z_]\w*)(?![\w*])")
# Notes describe the past: a name in them was right when they were written.
DECISIONS = "docs/decisions/"
NOTE_TITLE = re.compile(r"# \d+\. (.+)\n")
DECISION_ROW = re.compile(r"^\| \[\d+\]\((?P<file>[^)]+)\) \| (?P<title>.+?) \| (?P<status>.*) \|$",
                          re.M)
HISTORY = ("docs/decisions/", "CHANGELOG.md")
# The version, and the places that repeat it because no program can write it there.
HEADER, VERSION = "include/loam/loam.h", re.compile(r"^#define LOAM_HEADER_VERSION (\d+)$", re.M)
VERSIONED = {
    "packaging/vcpkg/vcpkg.json": re.compile(r'"version-string": "([^"]*)"'),
    "examples/rust/Cargo.toml": re.compile(r'^loam-alloc = \{ version = "([^"]*)"', re.M),
    "docs/install.md": re.compile(r'^loam-alloc = \{ path = "FOLDER/loam-alloc-([\d.]*)"', re.M),
    "examples/CMakeLists.txt": re.compile(r"find_package\(loam ([\d.]*)"),
    "tests/packaging/consumer/CMakeLists.txt": re.compile(r"find_package\(loam ([\d.]*)"),
}
CXX_SUFFIXES = {".h", ".hpp", ".c", ".cpp"}
# A document that a program writes; a table's row, a picture or a line of code.
WRITTEN = re.compile(r"\A(?:<!-- |# .*\n\n\*)Written by ")
WIDE = re.compile(r"\s*(?:\||!\[)|    ")
# What bench/publish writes into the README, and figures with a column's unit.
RESULTS = re.compile(r"<!-- results: begin.*?-->\n(.*?)<!-- results: end -->", re.S)
UNIT = re.compile(r"^[\d.]+ ?(%|x|MiB|)$")
# The README's sentence on real programs and the frontier, and what bench/publish wrote of them.
FRONT = re.compile(r"took ([\d.]+) to ([\d.]+) of the fastest peer's speed and ([\d.]+) to "
                   r"([\d.]+) of the smallest peak, but for (\w+) and (\w+); at (\d+) of eighty")
PROGRAM_ROW = re.compile(r"^\| (\w+) [^|]*\|[^|]*\| ([\d.]+) \["
                         r"[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \[", re.M)
AHEAD = re.compile(r"a peer is ahead in both figures at (\d+)")
FIGURE = re.compile(r"(?<![\w.,/-])(\d+(?:\.\d+)?) ?(%|x(?!\w)|MiB|)(?![\w.]*\w)")
MAKE = re.compile(r"\bmake((?: [a-z][\w-]*)+)")


class Repository:
    """The tracked files of a tree, and the identifiers that its sources contain."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True)
        if listed.returncode == 0:
            names = [name for name in listed.stdout.decode().split("\0") if name]
        else:
            names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        self.files = {name for name in names if (root / name).is_file()}
        self.folders = {str(parent) for name in self.files for parent in Path(name).parents}
        self.basenames = {Path(name).name for name in self.files}
        self.words: set[str] = set()
        self.declarations = cxx_names.Declarations()
        # loam::loam_static is a target of the build, and no name in the sources.
        self.build_targets: set[str] = set()
        for name in self.files:
            path = Path(name)
            if path.suffix in NAME_SUFFIXES and "vendor" not in path.parts:
                self.words |= set(re.findall(r"[A-Za-z_]\w*", self.text(name) or ""))
            if path.suffix in CXX_SUFFIXES and "vendor" not in path.parts:
                self.declarations.add(self.text(name) or "")
            if path.name == "CMakeLists.txt" or path.suffix == ".cmake":
                self.build_targets |= set(MEMBER.findall(self.text(name) or ""))
        makefile = self.text("Makefile") or ""
        self.targets = set(re.findall(r"^([a-z][\w-]*)\s*:(?!=)", makefile, re.M))
        for line in re.findall(r"^\.PHONY\s*:(.*)$", makefile, re.M):
            self.targets |= set(line.split())

    def text(self, name: str) -> str | None:
        """The text of a file; None if it is not text."""
        path = self.root / name
        if not path.is_file():
            return None
        try:
            return path.read_text()
        except UnicodeDecodeError:
            return None

    def documents(self) -> list[str]:
        return sorted(name for name in self.files
                      if name.endswith(".md") and "vendor" not in Path(name).parts)

    def cxx_sources(self) -> list[str]:
        return sorted(name for name in self.files
                      if Path(name).suffix in CXX_SUFFIXES and "vendor" not in Path(name).parts)

    def has_path(self, mentioned: str, document: str) -> bool:
        """Resolves relative to the root, to the document, or by a path's unambiguous end
        ("base/bits.h")."""
        wanted = mentioned.rstrip("/")
        beside = posixpath.normpath(str(Path(document).parent / wanted))
        known = self.files | self.folders
        return (wanted in known or beside in known or wanted in self.basenames
                or any(name.endswith("/" + wanted) for name in known))


def slug(heading: str) -> str:
    """The anchor that a forge makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def blank(text: str, pattern: re.Pattern[str]) -> str:
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def resolve(repository: Repository, document: str, path: str) -> str | None:
    """The tree's name for a path relative to a document; None outside the tree."""
    root = repository.root.resolve()
    target = (root / document).parent.joinpath(path).resolve()
    return str(target.relative_to(root)) if target.is_relative_to(root) else None


def check_links(repository: Repository, document: str, text: str, errors: list[str]) -> None:
    prose = blank(blank(text, FENCE), SPAN)
    for match in LINK.finditer(prose):
        target = match.group(1)
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        where = f"{document}:{line_of(text, match.start())}"
        path, _, anchor = target.partition("#")
        resolved = resolve(repository, document, path) if path else document
        if not resolved or resolved not in repository.files | repository.folders:
            errors.append(f"{where}: the link's target '{target}' does not exist")
            continue
        if anchor and resolved.endswith(".md"):
            headings = HEADING.findall(blank(repository.text(resolved) or "", FENCE))
            if anchor not in {slug(heading) for heading in headings}:
                errors.append(f"{where}: '{resolved}' has no heading for '#{anchor}'")


def is_placeholder(name: str) -> bool:
    """NAME.cpp, TARGET/x: a word in capitals is a placeholder, unless it is a document's name."""
    return any(re.fullmatch(r"[A-Z][A-Z_]+", part.split(".")[0]) and not part.endswith(".md")
               for part in name.split("/"))


def check_names(repository: Repository, document: str, text: str, errors: list[str]) -> None:
    prose = blank(text, FENCE)
    for match in SPAN.finditer(prose):
        span = match.group(1).strip()
        where = f"{document}:{line_of(text, match.start())}"
        if found := PATH.match(span):
            check_path(repository, document, found.group(1), where, errors)
        elif found := FUNCTION.match(span) or QUALIFIED.match(span):
            name = found.group(1)
            if name.startswith(("std::", "__")):
                continue
            missing = [part for part in name.replace("~", "").split("::")
                       if part not in repository.words]
            if missing:
                errors.append(f"{where}: `{span}`: nothing in the sources is called "
                              f"{' or '.join(missing)}")
                continue
        if not document.startswith(HISTORY):
            check_members(repository, where, span, errors)


def check_members(repository: Repository, where: str, words: str, errors: list[str]) -> None:
    for name in MEMBER.findall(words):
        if name.startswith("std::") or name in repository.build_targets:
            continue
        if wrong := repository.declarations.undeclared(name):
            errors.append(f"{where}: `{name}`: {wrong}")


def check_comments(repository: Repository, errors: list[str]) -> None:
    for name in repository.cxx_sources():
        for line, words in cxx_names.comments(repository.text(name) or ""):
            check_members(repository, f"{name}:{line}", words, errors)


def check_path(repository: Repository, document: str, name: str, where: str,
               errors: list[str]) -> None:
    first = name.split("/")[0]
    suffix = Path(name).suffix
    # Products of the build are not tracked, and not every word with a dot or a slash is a file.
    if first == "build" or is_placeholder(name):
        return
    is_file_name = suffix in CODE_SUFFIXES and not re.fullmatch(r"[\d.]+", name)
    in_tree = "/" in name and (first in repository.folders or first in repository.files)
    if (is_file_name or in_tree) and not repository.has_path(name, document):
        errors.append(f"{where}: `{name}` does not exist")


def check_make_targets(repository: Repository, document: str, text: str,
                       errors: list[str]) -> None:
    if not repository.targets:
        return
    snippets = [(match.start(), match.group(0)) for match in FENCE.finditer(text)]
    snippets += [(match.start(), match.group(1)) for match in SPAN.finditer(blank(text, FENCE))]
    for start, snippet in snippets:
        for line_number, line in enumerate(snippet.splitlines()):
            command = line.strip().removeprefix("$ ")
            if not (match := MAKE.match(command)):
                continue
            for target in match.group(1).split():
                if target not in repository.targets:
                    errors.append(f"{document}:{line_of(text, start) + line_number}: "
                                  f"the Makefile has no target '{target}'")


def check_size(repository: Repository, errors: list[str]) -> None:
    """docs/ without its history is short, and prose is narrow. Tables, pictures, what a program
    printed or wrote, and history may be wide."""
    pages = [name for name in repository.documents()
             if name.startswith("docs/") and not name.startswith((DECISIONS, "docs/releases/"))]
    lines = sum((repository.text(name) or "").count("\n") for name in pages)
    if lines > DOCS_LINES:
        errors.append(f"docs/: {lines} lines; {DOCS_LINES} is the limit. Cut what is said twice")
    for name in repository.documents():
        text = repository.text(name) or ""
        if name.startswith((*HISTORY, "docs/releases/")) or WRITTEN.search(text):
            continue
        for number, line in enumerate(blank(blank(text, FENCE), RESULTS).splitlines(), 1):
            if len(line.rstrip()) > DOCS_COLUMNS and not WIDE.match(line):
                errors.append(f"{name}:{number}: {len(line)} columns; {DOCS_COLUMNS} is the limit")


def row_cells(line: str) -> list[str]:
    return [cell.strip().strip("*").strip() for cell in line.strip().strip("|").split("|")]


def pieces(text: str) -> list[tuple[int, str]]:
    """The sentences of a document, and the rows of its tables with their heading and their
    header."""
    found, heading, header, paragraph, first = [], "", "", [], 0
    for number, line in enumerate([*blank(text, FENCE).splitlines(), ""], 1):
        is_row = line.startswith("|")
        if paragraph and (is_row or not line.strip() or line.startswith("#")):
            found += [(first, sentence)
                      for sentence in re.split(r"(?<=[.:;]) ", " ".join(paragraph))]
            paragraph = []
        if line.startswith("#"):
            heading, header = line, ""
        elif is_row:
            header = header or line
            found.append((number, f"{heading} {header if header != line else ''} {line}"))
        elif line.strip():
            first = number if not paragraph else first
            paragraph.append(line.strip())
        if not is_row:
            header = ""
    return found


def check_figures(repository: Repository, errors: list[str]) -> None:
    """Who names an experiment of the README's table and an allocator, and a figure in the unit of
    one of its columns, must say what the table says."""
    table = RESULTS.search(repository.text("README.md") or "")
    if not table:
        return
    rows = [row_cells(line) for line in table[1].splitlines() if line.startswith("|")]
    titles, body = rows[0], rows[2:]
    units = [match[1] if (match := UNIT.match(cell)) else None for cell in body[0]]
    family = {row[0]: row[0].split()[0].lower() for row in body}
    for document in ["README.md", *(name for name in repository.documents()
                                    if name.startswith("docs/") and not name.startswith(
                                        (DECISIONS, "docs/releases/")))]:
        for line, piece in pieces(blank(repository.text(document) or "", RESULTS)):
            named = [row for row in body if re.search(rf"\b{family[row[0]]}\b", piece.lower())]
            for unit in {unit for unit in units if unit is not None}:
                columns = [at for at, title in enumerate(titles) if units[at] == unit and any(
                    f"`{span}`" in piece for span in SPAN.findall(title))
                    or units[at] == unit == "%" and "overhead" in piece]
                told = {figure for figure, of in FIGURE.findall(piece) if of == unit
                        and (of or re.fullmatch(r"\d\.\d\d", figure))}
                known = {number for row in named for at in columns
                         for number in re.findall(r"[\d.]+", row[at])}
                if named and columns and told - known:
                    errors.append(f"{document}:{line}: says {', '.join(sorted(told - known))} "
                                  f"{unit} of "
                                  f"{', '.join(titles[at] for at in columns)}; the README's table "
                                  f"says "
                                  f"{', '.join(sorted(known))}")


def check_front_page(repository: Repository, errors: list[str]) -> None:
    """The README's sentence on programs and the frontier must be that of the committed tables."""
    said = FRONT.search(" ".join((repository.text("README.md") or "").split()))
    rows = PROGRAM_ROW.findall(repository.text("bench/results/programs.md") or "")
    ahead = AHEAD.search(repository.text("bench/results/frontier.md") or "")
    if not rows or not ahead:
        return
    if not said:
        errors.append("README.md: no sentence on real programs that check_docs could compare")
        return
    kept = [[float(speed), float(peak)] for name, speed, peak in rows
            if not any(word.startswith(name) for word in (said[5], said[6]))]
    speeds, peaks = zip(*kept)
    is_so = [f"{figure:.2f}" for figure in (min(speeds), max(speeds), min(peaks), max(peaks))]
    is_so.append(ahead[1])
    told = [said[1], said[2], said[3], said[4], said[7]]
    if told != is_so:
        errors.append(f"README.md: says {', '.join(told)} of programs and points; bench/results "
                      f"says {', '.join(is_so)}")


def check_decisions(repository: Repository, errors: list[str]) -> None:
    """Each decision note must have one row in the index, with the note's own title and a status."""
    index = repository.text(DECISIONS + "README.md") or ""
    rows: dict[str, list[tuple[str, str]]] = {}
    for match in DECISION_ROW.finditer(index):
        rows.setdefault(match.group("file"),
                        []).append((match.group("title"), match.group("status")))
    for name in repository.documents():
        note = NOTE_TITLE.match(repository.text(name) or "")
        if not name.startswith(DECISIONS) or not note:
            continue
        found = rows.get(name.removeprefix(DECISIONS), [])
        if len(found) != 1:
            errors.append(f"{name}: {len(found)} rows in {DECISIONS}README.md, not one")
        elif found[0][0] != note.group(1):
            errors.append(f"{name}: its title is not that of {DECISIONS}README.md, '{found[0][0]}'")
        elif not found[0][1].strip():
            errors.append(f"{name}: no status in {DECISIONS}README.md")


def check_versions(repository: Repository, errors: list[str]) -> None:
    """A version that was written by hand must be the header's, or its beginning: 0.1 is right for
    0.1.7."""
    found = VERSION.search(repository.text(HEADER) or "")
    if not found:
        return
    number = int(found[1])
    version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    for name, pattern in VERSIONED.items():
        text = repository.text(name)
        written = None if text is None else pattern.search(text)
        if text is not None and not written:
            errors.append(f"{name}: no version where `{pattern.pattern}` should find it")
        elif written and not f"{version}.".startswith(f"{written[1]}."):
            errors.append(f"{name}:{line_of(text, written.start())}: has version {written[1]}, "
                          f"{HEADER} has {version}")


def check_no_private_names(repository: Repository, errors: list[str]) -> None:
    for name in sorted(repository.files):
        text = repository.text(name)
        if text is None:
            continue
        if name.endswith("Cargo.lock"):
            text = text.replace(CARGO_INDEX, "")
        for pattern, what in ((MACHINE_PATHS, "a machine's own folder"),
                              (REGISTRY_HOSTS, "a package registry's host")):
            for match in pattern.finditer(text):
                errors.append(f"{name}:{line_of(text, match.start())}: names {what}: "
                              f"{match.group(0)}")


def check(root: Path) -> list[str]:
    repository = Repository(root)
    errors: list[str] = []
    readme = repository.text("README.md")
    if readme is None:
        errors.append("README.md: missing")
    elif readme.count("\n") > README_LINES:
        errors.append(f"README.md: {readme.count(chr(10))} lines; {README_LINES} is the limit, "
                      "the rest belongs in docs/")
    for document in repository.documents():
        text = repository.text(document) or ""
        check_links(repository, document, text, errors)
        check_names(repository, document, text, errors)
        check_make_targets(repository, document, text, errors)
    check_size(repository, errors)
    check_figures(repository, errors)
    check_front_page(repository, errors)
    check_decisions(repository, errors)
    check_comments(repository, errors)
    check_versions(repository, errors)
    check_no_private_names(repository, errors)
    return errors


# --- The check checked: each rule broken once, on purpose ----------------------------------------

RESULTS_GOOD = (
    "<!-- results: begin. -->\n| | `run` time | `run` memory overhead |\n|---|---|---|\n"
    "| glibc 2.36 | 1.00x | **9.9 %** |\n| **Loam** | 0.60x | 10.5 % |\n<!-- results: end -->\n")
GOOD = {
    "README.md": "# Loam\n\nSee [the map](docs/map.md#how-it-is-found), `src/map/page_map.h`,\n"
                 "`page_map.h`, `PageMap::find()` and `build/loam`; run `make test`.\n"
                 "`3.14`, `std::vector::at()`, `NAME.cpp` and `malloc(3)` are no files.\n"
                 "```\n$ make test\nnot `checked()` here\n```\n"
                 + RESULTS_GOOD +
                 "Loam took 0.93 to 1.32 of the fastest peer's speed and 0.94 to 1.10 of the "
                 "smallest\npeak, but for xmllint and gawk; at 20 of eighty points.\n"
                 "With `run` Loam takes 0.60x and has 10.5 %, not 20.5 MiB.\n",
    "docs/map.md": "# Map\n\n## How it is found\n\n[up](../README.md), `../src/map/page_map.h`\n",
    "src/map/page_map.h": "struct PageMap : Base { int find(); union { int low; } word; };\n"
                          "// malloc; PageMap::low, PageMap::word, PageMap::inherited, kNear\n",
    "src/map/base.h": "namespace loam::map {\nenum class Kind : int { kNear, kFar };\n"
                      "struct Base { void inherited() { int local; } enum { kSize }; };\n}\n"
                      "// Base::kSize, Kind::kFar, map::Kind, loam::map, std::map::at\n",
    "src/CMakeLists.txt": "add_library(loam::loam_static ALIAS loam_static)\n",
    "docs/decisions/0001-a.md": "# 1. Pages are found\n",
    "docs/decisions/README.md": "| [1](0001-a.md) | Pages are found | stands |\n",
    "bench/results/gates.md": "# Gates\n\n*Written by a program*\n\n" + "wide " * 25 + "\n",
    "CHANGELOG.md": "- " + "wide " * 25 + "\n\n    " + "wide " * 25 + "\n",
    "bench/results/programs.md": "| z3 4 | 1 s | 0.93 [0.9] | a | 1 MiB | 1.10 [1] | b |\n"
                                 "| lua 5 | 1 s | 1.32 [0.9] | a | 1 MiB | 0.94 [1] | b |\n",
    "bench/results/frontier.md": "a peer is ahead in both figures at 20; else\n",
    "docs/cmake.md": "link `loam::loam_static`\n",
    "Makefile": ".PHONY: test\ntest:\n\ttrue\n",
    "include/loam/loam.h": "#define LOAM_HEADER_VERSION 203\n",
    "examples/CMakeLists.txt": "find_package(loam 0.2 REQUIRED)\n",
    "tool/Cargo.lock": f'source = "{CARGO_INDEX}"\n',
}
BROKEN = {
    "a dead link": ("docs/a.md", "[x](gone.md)\n", "does not exist"),
    "a link out of the tree": ("docs/a.md", "[x](../../etc/passwd)\n", "does not exist"),
    "a dead anchor": ("docs/a.md", "[x](map.md#nowhere)\n", "no heading"),
    "a file that is gone": ("docs/a.md", "as in `src/map/gone.h`\n", "does not exist"),
    "a lone file name that is gone": ("docs/a.md", "as in `gone.cpp`\n", "does not exist"),
    "a folder that is gone": ("docs/a.md", "all of `src/gone/`\n", "does not exist"),
    "a function that is gone": ("docs/a.md", "then `vanish()` runs\n", "vanish"),
    "a method that is gone": ("docs/a.md", "then `PageMap::vanish(page)` runs\n", "vanish"),
    "a qualified name that is gone": ("docs/a.md", "the `PageMap::vanish` member\n", "vanish"),
    "a method of another class": ("docs/a.md", "then `Kind::find()` runs\n", "Kind declares no"),
    "a method of another class in a comment": ("src/a.h", "// Like Base::find().\n",
                                               "src/a.h:1: `Base::find`"),
    "a variable of a function": ("src/a.cpp", "// See Base::local.\n", "Base declares no local"),
    "a name of another namespace": ("src/a.cpp", "// map::find\n", "map declares no find"),
    "a make target that is gone": ("docs/a.md", "```\nmake test vanish\n```\n", "no target"),
    "a machine's folder": ("src/a.h", "// see /wo" + "rk/x\n", "machine's own folder"),
    "another machine's folder": ("a.json", '"/ro' + 'ot/.cargo"\n', "machine's own folder"),
    "a registry": ("tools/x.py", "https://py" + "pi.org/simple\n", "registry's host"),
    "a decision without a row": ("docs/decisions/0002-b.md", "# 2. Else\n", "0 rows"),
    "a decision under another title": ("docs/decisions/0001-a.md", "# 1. Else\n", "title is not"),
    "an old version": ("packaging/vcpkg/vcpkg.json", '{"version-string": "0.2.1"}\n',
                       "has version 0.2.1"),
    "a version like another": ("examples/CMakeLists.txt", "find_package(loam 0.20)\n",
                               "has version 0.20"),
    "a version that is gone": ("docs/install.md", "# Install\n", "no version"),
    "docs that grew": ("docs/a.md", "line\n" * DOCS_LINES, "is the limit. Cut"),
    "a wide line": ("docs/a.md", "wide " * 25 + "\n", "is the limit"),
    "a wide line elsewhere": ("bench/README.md", "wide " * 25 + "\n", "is the limit"),
    "a figure of another day": ("docs/a.md", "Under `run` Loam has 8.8 % more.\n", "says 8.8 %"),
    "a figure of another day in a table": ("docs/a.md", "## `run`\n\n| Loam | glibc |\n|---|---|\n"
                                           "| 10.5 % | 14.2 % |\n", "says 14.2 %"),
    "an overhead of another day": ("docs/a.md", "Its overhead is 12 % under glibc.\n", "says 12 %"),
    "a table of another day": ("bench/results/programs.md",
                               "| z3 4 | 1 s | 0.93 [0.9] | a | 1 MiB | 1.10 [1] | b |\n"
                               "| lua 5 | 1 s | 1.31 [0.9] | a | 1 MiB | 0.94 [1] | b |\n"
                               "| gawk 5 | 1 s | 0.2 [0.9] | a | 1 MiB | 1.94 [1] | b |\n",
                               "bench/results says 0.93, 1.31, 0.94, 1.10, 20"),
    "a time of another day": ("README.md", RESULTS_GOOD + "`run` takes Loam 0.61x.\n", "says 0.61"),
    "a long README": ("README.md", "line\n" * (README_LINES + 1), "is the limit"),
}


def self_test() -> int:
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        def tree(name: str, files: dict[str, str]) -> Path:
            for path, text in files.items():
                target = Path(temporary) / name / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
            return Path(temporary) / name

        if errors := check(tree("good", GOOD)):
            failures.append(f"a tree in order is refused: {errors}")
        for index, (name, (path, text, words)) in enumerate(BROKEN.items()):
            errors = check(tree(str(index), {**GOOD, path: text}))
            if not any(words in error for error in errors):
                failures.append(f"{name}: wanted '{words}', got {errors}")
        missing = check(tree("missing", {k: v for k, v in GOOD.items() if k != "README.md"}))
        if not any("README.md: missing" in error for error in missing):
            failures.append(f"a missing README: got {missing}")
    for failure in failures:
        print(failure)
    print(f"check_docs self-test: {len(BROKEN) + 2 - len(failures)} as wanted, {len(failures)} not")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true", help="prove that each rule can fail")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    errors = check(arguments.root)
    for error in errors:
        print(error)
    print(f"check_docs: {len(errors)} found" if errors else "check_docs: in order")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
