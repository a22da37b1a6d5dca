#!/usr/bin/env python3
"""Writes the list of functions in src/api/layout.ld: the ones that programs run, the most common
first. A fault on the library's file then maps little that nobody runs (decision 18).

Usage: gen_layout.py BUILD

BUILD: a build folder without an order of functions, because callgrind names functions of one
section only:  cmake --preset release -B build/unordered -DLOAM_LINKER_TAKES_LAYOUT=OFF
               cmake --build build/unordered --target loam

Programs that are not here are left out, with a line that says so.
"""
import bisect
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TARGET = pathlib.Path(__file__).resolve().parent.parent / "src/api/layout.ld"
BEGIN, END = "    /* Begin of what tools/gen_layout.py writes. */\n", "    /* Its end. */\n"
PROGRAMS = [  # what a program's start runs leads, because every one of them runs it
    ["cat", "/etc/passwd"],
    ["sleep", "0.1"],
    ["sort"],
    ["bash", "-c", "for i in {1..2000}; do a[$i]=$i$i; done"],
    ["gawk", "{c[$0]++}", "/etc/services"],
    ["git", "log", "--oneline", "-200"],
    ["vim", "-es", "-c", "q"],
    ["find", "/usr", "-name", "*.py"],
    ["apt-config", "dump"],
    ["perl", "-e", '$h{$_} = "x" x ($_ % 3000) for 1..20000; print sort keys %h'],
    ["python3", "-c", "import json, os, re, argparse; x = [str(i) * 20 for i in range(20000)]"],
    ["sqlite3", ":memory:", "create table t(a, b); with recursive c(x) as (select 1 union all "
     "select x + 1 from c where x < 20000) insert into t select x, 'abc' || x from c"],
    ["jq", "-n", '[range(5000) | {a: ., b: "x\\(.)"}] | length'],
    ["lua5.4", "-e", 'local t = {} for i = 1, 20000 do t[i] = ("x"):rep(i % 500) end'],
    ["ruby", "-e", 'a = (1..20000).map { |i| "x" * (i % 500) }'],
    ["php", "-r", '$a = []; for ($i = 0; $i < 20000; $i++) $a[] = str_repeat("x", $i % 300);'],
    ["python3", "-c", "import asyncio, threading as t; w = [t.Thread(target=lambda: [str(i) * 9 "
     "for i in range(9000)]) for _ in range(3)]; [x.start() for x in w]; [x.join() for x in w]; "
     "asyncio.run(asyncio.sleep(0.1))"],
]  # fmt: skip


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def executed(profile, library, starts):
    """{place in `starts`: instructions} of the library's functions, or parts of them, that ran."""
    found, inside, objects, is_call = collections.Counter(), False, {}, False
    for line in profile.read_text().splitlines():
        if m := re.match(r"c?ob=\((\d+)\)(?: (.*))?$", line):
            objects.setdefault(m[1], m[2])
            if line.startswith("ob="):
                inside = objects[m[1]] == str(library)
        elif inside and line.startswith("0x"):
            address, _, count = line.split()
            # The line after that of a call has what the called function executed.
            place = bisect.bisect_right(starts, int(address, 16)) - 1
            found[place] += 0 if is_call else int(count)
        is_call = line.startswith("calls=")
    return found


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    library = build / "libloam.so"
    objects = sorted(build.glob("CMakeFiles/**/*.o"))
    if not library.exists() or not objects:
        sys.exit(f"gen_layout: {build} has no libloam.so with its objects; see --help")
    if missing := [tool for tool in ("valgrind", "objdump", "nm") if shutil.which(tool) is None]:
        sys.exit(f"gen_layout: not here: {', '.join(missing)} (Debian: valgrind, binutils)")
    sections = {}  # a symbol's section in its object
    for line in run("objdump", "-t", *map(str, objects)).splitlines():
        if m := re.match(r"[0-9a-f]+ .{7} (\.text\S+)\t[0-9a-f]+ (?:\.hidden )?(\S+)$", line):
            # Parts of a function have a number or a word behind its name.
            sections.setdefault(m[2], re.sub(r"\.(part|isra|constprop|cold)\b.*", "", m[1]))
    names = run("nm", "-n", "--defined-only", str(library)).splitlines()
    symbols = [(int(a, 16), name) for a, kind, name in map(str.split, names) if kind in "tTwW"]
    starts = [address for address, _ in symbols]
    programs, shares = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder) / "profile"
        for command in PROGRAMS:
            if shutil.which(command[0]) is None:
                print(f"left out, because it is not here: {command[0]}")
                continue
            subprocess.run(
                [
                    "valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-pos=no",
                    f"--callgrind-out-file={profile}", *command
                ],
                cwd=TARGET.parent, env=os.environ | {"LD_PRELOAD": str(library)},
                stdin=subprocess.DEVNULL, capture_output=True)  # fmt: skip
            ran = collections.Counter()
            for place, count in executed(profile, library, starts).items():
                ran[sections.get(symbols[place][1])] += count
            del ran[None]
            programs.update(ran.keys())
            shares.update({section: count / ran.total() for section, count in ran.items()})
    common = sorted(programs, key=lambda section: (-programs[section], -shares[section], section))
    lines = [f"    *({section} {section}.*)\n" for section in common]
    text = TARGET.read_text()
    head, rest = text.split(BEGIN)
    TARGET.write_text(head + BEGIN + "".join(lines) + END + rest.split(END)[1])
    print(f"{len(lines)} functions in {TARGET.name}")


if __name__ == "__main__":
    main()
