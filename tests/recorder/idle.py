#!/usr/bin/env python3
"""A program that has the recorder and is not recorded pays little for it: instructions of a round
of idle.cpp.

The recorder stays in a process whose recording has ended, and in each program that such a process
starts. Under callgrind, which counts instructions, a long run with it and without it is compared
with a short one, so that what a start costs does not count.

    idle.py RECORDER PROGRAM        exit status 77: valgrind is not installed
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

SHORT, LONG = 1000, 11000
CALLS = 9  # of a round: the program's seven, and two that the operators make
# It was 18 when this was written, and 219 when each hook tried to write an event.
MOST_PER_CALL = 27


def instructions(program, rounds, preload):
    environment = {"PATH": os.environ["PATH"], **({"LD_PRELOAD": preload} if preload else {})}
    with tempfile.TemporaryDirectory(prefix="loam-idle-") as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={Path(folder) / 'out'}",
                   program, str(rounds)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    counted = re.search(r"Collected : (\d+)", ran.stderr)
    if ran.returncode != 0 or counted is None:
        sys.exit(f"{program} does not run under callgrind: {ran.stderr[-500:]}")
    return int(counted.group(1))


def main():
    recorder, program = sys.argv[1:]
    if shutil.which("valgrind") is None:
        print("valgrind is not installed (Debian package valgrind)")
        return 77
    a_round = {
        preload: (instructions(program, LONG, preload)
                  - instructions(program, SHORT, preload)) / (LONG - SHORT)
        for preload in ("", recorder)
    }
    added = a_round[recorder] - a_round[""]
    print(f"{added:.1f} instructions in {CALLS} calls, beside {a_round['']:.1f}")
    if added <= 0:
        sys.exit("the recorder was not loaded, so nothing was counted")
    return int(added > MOST_PER_CALL * CALLS)


if __name__ == "__main__":
    sys.exit(main())
