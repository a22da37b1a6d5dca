#!/usr/bin/env python3
"""check.py --library libloam.so --counts PROGRAM: what the library adds to a program's start, in
counts (decision 18).

Counted are page faults and system calls beyond those of the system's malloc; names that the dynamic
linker looks up; relocations; segments. The clock is not used. A count that falls is welcome: lower
its limit here. A count that rises costs every start of a program under the heap:
docs/decisions/0018 says how each count was reduced, and how to find the cause of a rise.
"""

import argparse
import os
import re
import subprocess
import sys

# Other activity of the machine only adds faults to a start (for example, if a library is partly out
# of the page cache). So the least of this many measurements counts.
TIMES = 3

# Faults are means of many runs. Measured 7 and 17.8 (Linux 6.18, glibc 2.36); other systems map
# the pages around a fault a little differently. One function too far away is one fault more:
# tools/gen_layout.py orders them anew. One fault is the look at the end for pointers that begin no
# block (decision 69), in a program that freed something. One came with the operators (decision 4).
MOST = {
    ("nothing", "faults"): 9,
    ("malloc", "faults"): 19,
    # All eight map the library, as for any library: open, read, fstat, three times mmap, close,
    # mprotect.
    ("nothing", "calls"): 8,
    ("malloc", "calls"): 10,
    # Eight are operators, because the heap must know without a look-up at run time whether the
    # program has its own (decision 4).
    "imports": 34,
    # One is where the spans' records begin, by which a census finds the blocks (decision 130).
    "relative relocations": 30,
    "segments": 2,
    # One fault maps 64 KiB. 448 where the order is the compiler's (layout.ld).
    "resident KiB of code after ordinary work": 192,
}


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 77:
        print("skipped: this system lets nobody trace a program")
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"startup: {' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def counts(program, mode, *preload):
    words = output(program, mode, *preload).split()
    return {"faults": float(words[1]), "calls": int(words[3])}


def copy_in_memory(library):
    """A path to a copy in anonymous memory. How many pages the system maps around a fault in a file
    depends on how the file lies in the page cache: one library had 18.2 faults on one machine and
    19.3 on another."""
    copy = os.memfd_create("libloam.so")
    with open(library, "rb") as file:
        os.sendfile(copy, file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return f"/proc/{os.getpid()}/fd/{copy}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--counts", required=True)
    arguments = parser.parse_args()

    found = {}
    preloaded = copy_in_memory(arguments.library)
    for mode in ("nothing", "malloc"):
        for _ in range(TIMES):
            with_it, without = counts(arguments.counts, mode, preloaded), counts(arguments.counts,
                                                                                 mode)
            for what in ("faults", "calls"):
                # Rounded: 71.4 - 52.4 is a little above 19.
                found[mode, what] = min(found.get((mode, what), 1e9),
                                        round(with_it[what] - without[what], 3))
    found["resident KiB of code after ordinary work"] = int(
        output("env", f"LD_PRELOAD={preloaded}", arguments.counts, "=work"))
    relocations = output("readelf", "-rW", arguments.library)
    found["relative relocations"] = len(re.findall(r"_RELATIVE\b", relocations))
    found["imports"] = len(re.findall(r"_(?:GLOB_DAT|JUMP_SLOT|JUMP_SLO)\b", relocations))
    headers = output("readelf", "-lW", arguments.library)
    found["segments"] = len(re.findall(r"^\s*LOAD\b", headers, re.M))

    risen = False
    for name, most in MOST.items():
        title = name if isinstance(name, str) else f"{name[1]} of a program with {name[0]}"
        mark = "" if found[name] <= most else "   <-- has risen"
        risen |= found[name] > most
        print(f"{title:42} {found[name]:4.4g}   at most {most}{mark}")
    # If a file ends inside a writable page, the dynamic linker copies that page to clear its rest.
    for offset, address, in_file, in_memory in re.findall(
            r"^\s*LOAD\s+(\S+) (\S+) \S+ (\S+) (\S+) RW ", headers, re.M):
        if int(in_memory, 16) > int(in_file,
                                    16) and (int(address, 16) + int(in_file, 16)) % 4096 != 0:
            print("the file's writable part ends inside a page   <-- see src/api/layout.ld")
            risen = True
    sys.exit(1 if risen else 0)


if __name__ == "__main__":
    main()
