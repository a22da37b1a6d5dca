#!/usr/bin/env python3
"""Checks that the C and C++ sources are laid out as .clang-format says.

    tools/check_format.py [--write] [FILE...]     default: all that git tracks
    tools/check_format.py --self-test

--write lays them out. Releases of clang-format differ in layout, so one release decides (RELEASE).
LOAM_CLANG_FORMAT may name it; otherwise it is clang-format-RELEASE or clang-format in PATH. Files
that a generator writes are left out. So is include/, because clang-format breaks the public
headers' block comments, which are laid out by hand.

Exit status: 0 in order, 1 something found, 77 that release of clang-format is not installed.
"""
from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = 14  # Debian 12's
SUFFIXES = {".h", ".hpp", ".c", ".cpp"}
GENERATED = re.compile(r"\A// Generated .*\bby tools/")
FOUND = re.compile(r"^(.+?:\d+):\d+: (?:error|warning): code should be clang-formatted", re.M)


def find_clang_format() -> str | None:
    for name in filter(None, [os.environ.get("LOAM_CLANG_FORMAT"), f"clang-format-{RELEASE}",
                              "clang-format"]):
        try:
            said = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        except OSError:
            continue
        if re.search(rf"version {RELEASE}\.", said):
            return name
    return None


def sources(root: Path) -> list[str]:
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True,
                            text=True, check=True).stdout
    return [name for name in listed.split("\0")
            if Path(name).suffix in SUFFIXES and "vendor" not in Path(name).parts
            and not name.startswith("include/")
            and (root / name).is_file()
            and not GENERATED.match((root / name).read_text(errors="replace"))]


def check(clang_format: str, root: Path, files: list[str], write: bool) -> list[str]:
    """`FILE:LINE` of each place with another layout; none after --write."""
    options = ["-i"] if write else ["--dry-run"]
    found = []
    for first in range(0, len(files), 50):
        done = subprocess.run([clang_format, *options, *files[first:first + 50]], cwd=root,
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{clang_format}: {done.stderr.strip() or done.returncode}")
        found += FOUND.findall(done.stderr)
    return found


def self_test(clang_format: str) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / ".clang-format").write_text((ROOT / ".clang-format").read_text())
        files = {
            "good.h": "// A\n//   picture | that is longer " + "- " * 50 + "|\nint f(int a);\n",
            "spaces.h": "int f( int a );\n",
            "long.cpp": "// " + "a comment " * 12 + "\nint x;\n",
        }
        for name, text in files.items():
            (root / name).write_text(text)
        found = check(clang_format, root, list(files), False)
        names = {place.partition(":")[0] for place in found}
        check(clang_format, root, list(files), True)
        left = check(clang_format, root, list(files), False)
        kept = (root / "good.h").read_text() == files["good.h"]
    if names != {"spaces.h", "long.cpp"} or left or not kept:
        print(f"self-test: found {found}, left {left}, what is in order was kept: {kept}")
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--self-test", action="store_true", help="prove that each rule can fail")
    arguments = parser.parse_args()
    clang_format = find_clang_format()
    if clang_format is None:
        print(f"check_format: no clang-format {RELEASE} in PATH (Debian 12: apt-get install "
              "clang-format) and none that LOAM_CLANG_FORMAT names")
        return 77
    if arguments.self_test:
        return self_test(clang_format)
    found = check(clang_format, ROOT, arguments.files or sources(ROOT), arguments.write)
    for place in found:
        print(f"{place}: laid out otherwise than .clang-format says; `make format` lays it out")
    print(f"check_format: {len(found)} found" if found else "check_format: in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
