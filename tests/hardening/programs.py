#!/usr/bin/env python3
"""Programs of other projects must do the same under every option of LOAM_HARDEN as without.

    tests/hardening/programs.py --library build/libloam.so

Exit status: 0 they do, 1 one does not (the difference is printed), 77 none of them is installed.
"""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON = """
import json, re, threading
words = [str(i * 7919 % 10007) for i in range(20000)]
table = {}
for word in words:
    table.setdefault(word[:2], []).append(word)
def work(n):
    return sum(len(json.dumps(table)) for _ in range(n))
threads = [threading.Thread(target=work, args=(5,)) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(work(3), len(re.findall("9+", " ".join(words))), sorted(table)[:5])
"""
CXX = "#include <map>\n#include <string>\n#include <vector>\n" \
      "std::map<std::string, std::vector<int>> m;\n" \
      "int main() { m[\"a\"].push_back(1); return static_cast<int>(m.size()) - 1; }\n"
SQL = """create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, hex(i * 7919 % 65536) from n;
create index by_b on t(b);
select count(*), sum(a), min(b), max(b) from t where b > '3333';
select group_concat(b) from (select b from t order by b limit 10);
"""
# The programs and their input. {folder} is a scratch folder.
PROGRAMS: dict[str, tuple[list[str], str]] = {
    "python3": (["python3", "-c", PYTHON], ""),
    "perl": (["perl", "-e", 'my %h; $h{$_ % 977} .= "$_," for 1..60000; print length(join "", map '
                            '{ $h{$_} } sort keys %h)'], ""),
    "g++": (["g++", "-std=c++17", "-O1", "-x", "c++", "-", "-S", "-o", "-"], CXX),
    "sqlite3": (["sqlite3", ":memory:"], SQL),
    "git": (["git", "-c", "init.defaultBranch=main", "init", "-q", "{folder}/repository"], ""),
    "xz": (["xz", "-c", "-T2", "-1"], "loam " * 400000),
    "sort": (["sort", "--parallel=2"], "".join(f"{i * 7919 % 100003}\n" for i in range(60000))),
}


def run(command: list[str], text: str, environment: dict[str, str]) -> tuple[int, bytes, bytes]:
    with tempfile.TemporaryDirectory(prefix="loam-hardening-") as folder:
        command = [word.replace("{folder}", folder) for word in command]
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=280,
                              env={**os.environ, **environment})
        return done.returncode, done.stdout, done.stderr.replace(folder.encode(), b"")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--library", type=Path, required=True)
    library = parser.parse_args().library.resolve()
    if not library.is_file():
        parser.error(f"{library} does not exist")
    wrong, runs = 0, 0
    for name, (command, text) in PROGRAMS.items():
        if shutil.which(command[0]) is None:
            print(f"{name}: not installed, left out")
            continue
        runs += 1
        wanted = run(command, text, {})
        got = run(command, text, {"LD_PRELOAD": str(library), "LOAM_HARDEN": "all"})
        if got == wanted:
            print(f"{name}: the same")
            continue
        wrong += 1
        print(f"{name}: differs: status {wanted[0]} and {got[0]}, {len(wanted[1])} and "
              f"{len(got[1])} bytes of "
              f"output; it said: {got[2][:500].decode(errors='replace')}")
    return 1 if wrong else 0 if runs else 77


if __name__ == "__main__":
    sys.exit(main())
