#!/usr/bin/env python3
"""`loam stats` and `loam top` read the counters of a program for Windows that Wine runs.

    tests/windows/watched.py --tool build/loam --wine WINE --program WATCHED

The environment is Wine's.

Exit status: 0 they agree with the program's own figures, 1 they do not, 77 the tool is not built.
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("--tool", "--wine", "--program"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    if not os.access(arguments.tool, os.X_OK):
        print(f"skipped: there is no {arguments.tool}; `make tool` builds it")
        return 77
    program = subprocess.Popen([arguments.wine, arguments.program], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE,
                               text=True)
    try:
        blocks, charged = map(int, program.stdout.readline().split())
        stats = subprocess.run([arguments.tool, "stats", str(program.pid), "--json"],
                               capture_output=True, text=True)
        top = subprocess.run([arguments.tool, "top", str(program.pid), "--batch", "-n", "1"],
                             capture_output=True,
                             text=True)
    finally:
        program.stdin.close()
        program.wait(60)
    if stats.returncode != 0 or top.returncode != 0:
        print(f"stats {stats.returncode}: {stats.stderr}\ntop {top.returncode}: {top.stderr}")
        return 1
    found = json.loads(stats.stdout)
    process = found["processes"][0]["counters"]["process"]
    told = {"live_blocks": process["live_blocks"], "charged_bytes": process["charged_bytes"]}
    # The run-time uses a block or two for the line that it wrote.
    fine = abs(told["live_blocks"] - blocks) <= 4 and told["charged_bytes"] == charged
    print(f"the program says {blocks} blocks live, {charged} bytes charged; loam stats: "
          f"{told}\n{top.stdout}")
    # Searches by the number, because the column cuts long names.
    is_listed = any(line.split()[:1] == [str(program.pid)] for line in top.stdout.splitlines())
    return 0 if fine and is_listed else 1


if __name__ == "__main__":
    sys.exit(main())
