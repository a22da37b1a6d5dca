#!/usr/bin/env python3
"""Checks what docs/testing.md says of AddressSanitizer and Valgrind beside the heap.

    run.py ORDINARY SANITISED LIBRARY      the program in both builds, and libloam.so
"""
import os
import shutil
import subprocess
import sys

ordinary, sanitised, library = sys.argv[1:]
failures = 0


def check(what, command, preload=None, status=None, says=(), **environment):
    """`status` None: any exit status except 0. `says`: each text must be in the output."""
    global failures
    variables = dict(os.environ, **environment)
    if preload:
        variables["LD_PRELOAD"] = preload
    done = subprocess.run(command, env=variables, capture_output=True, text=True, errors="replace",
                          timeout=280)
    text = done.stdout + done.stderr
    right = (done.returncode != 0 if status is None else done.returncode == status)
    missing = [each for each in says if each not in text]
    print(f"{'ok' if right and not missing else 'NOT AS DOCUMENTED'}: {what}")
    if not right or missing:
        failures += 1
        print(f"  status {done.returncode}, missing {missing}\n{text}")


check("ordinary", [ordinary], status=0, says=["owner loam"])
check("AddressSanitizer takes malloc, private heaps work", [sanitised], status=0,
      says=["owner another"])
check("AddressSanitizer finds the overflow", [sanitised, "overflow"], says=["heap-buffer-overflow"])
check("AddressSanitizer refuses to come second", [sanitised], preload=library,
      says=["ASan runtime does not come first"])
if shutil.which("valgrind"):
    grind = ["valgrind", "-q", "--error-exitcode=9"]
    check("Valgrind takes malloc, private heaps work", [*grind, ordinary], status=0,
          says=["owner another"])
    check("Valgrind finds the overflow", [*grind, ordinary, "overflow"], status=9,
          says=["Invalid write of size 1", "0 bytes after a block of size 100"])
    check("the same with the heap preloaded", [*grind, ordinary, "overflow"], preload=library,
          status=9,
          says=["Invalid write of size 1"])
else:
    print("no valgrind: its part is left out")
sys.exit(1 if failures else 0)
