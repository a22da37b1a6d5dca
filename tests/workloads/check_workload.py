#!/usr/bin/env python3
"""Runs one experiment of the lab in a tiny form and checks its promises.

Every line is a JSON object with the contracted keys, and the figures are possible. The same seed
makes the same requests to the system's malloc and to Loam (the end line's checksum). Bad usage ends
with status 2 and a message, a full disk with status 1.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys

START = {"type": str, "workload": str, "version": int, "seed": int, "form": str,
         "parameters": dict, "machine": dict, "baseline_resident_bytes": int}
CHECKPOINT = {"type": str, "variant": str, "series": str, "index": int, "x": int, "x_unit": str,
              "operations": int, "seconds": (int, float),
              "processor_seconds": (int, float), "operations_per_second": (int, float, type(None)),
              "latency_ns": (dict, type(None)), "live_bytes": int, "resident_bytes": int,
              "peak_resident_bytes": int, "lazyfree_bytes": int, "huge_bytes": int,
              "minor_faults": int, "major_faults": int, "user_seconds": (int, float),
              "system_seconds": (int, float), "mappings": int,
              "overhead": (int, float, type(None))}
END = {"type": str, "seconds": (int, float), "resident_bytes": int, "peak_resident_bytes": int}

# Arguments that make the experiment tiny; other ways to run it; does its checksum follow the seed?
TINY = {
    "lfh": (["--iterations", "30000", "--scale", "5"], [["--threads", "3"]], True),
    "contention": (["--iterations", "20000", "--threads", "2"], [["--arrangement", "shared"]],
                   True),
    "tokens": (["--units", "c++", "--files", "6", "--runs", "3"],
               [["--variant", v] for v in ("null", "pool", "arena", "loam-lfh")] +
               [["--units", "c", "--repeat", "2"]], False),
    "buffer-cache": (["--steps", "2000"],
                     [["--generator", "harness", "--chance", "quarter"], ["--depth", "3"],
                      ["--policy", "loam"], ["--policy", "heap"]], True),
    "queue": (["--entries", "500", "--rounds", "2", "--threads", "3"],
              [["--container", "list", "--allocation", "padded", "--strings", "3"]], True),
    "sizes": (["--total", "2M", "--rounds", "2", "--idle-ms", "10"],
              [["--size", "4096", "--variant", "aligned"], ["--variant", "alternating-compact"]],
              False),
    "levels": (["--live", "2M", "--frames", "30", "--levels", "2"],
               [["--variant", "arena"], ["--variant", "loam-arena"]],
               True),
    "phase": (["--live", "2M", "--rounds", "5", "--idle-ms", "10"], [], True),
    "sparse": (["--live", "4M", "--idle-ms", "10"], [], True),
    "handoff": (["--blocks", "40000", "--bytes", "16", "--bytes-most", "500"],
                [["--threads", "4"], ["--ring", "64"]], True),
}

# Wrong arguments, and the word that the message must contain.
BAD = {
    "": [(["--no-such"], "--no-such"), (["stray"], "stray"), (["--seed", "x"], "--seed"),
         (["--seed"], "--seed"), (["--seed", "-1"], "--seed"), (["--quick", "--full"], "--full")],
    "lfh": [(["--threads", "0"], "--threads"), (["--iterations", "1e6"], "--iterations")],
    "tokens": [(["--variant", "jemalloc"], "arena"), (["--runs=0"], "--runs")],
    "queue": [(["--strings", "1"], "--strings"), (["--alignment", "24"], "--alignment")],
    "sizes": [(["--size", "7"], "--size"), (["--total", "12Q"], "--total")],
    "handoff": [(["--ring", "1000"], "--ring"),
                (["--bytes", "64", "--bytes-most", "32"], "--bytes-most")],
    "buffer-cache": [(["--policy", "best"], "largest"), (["--depth", "65"], "--depth")],
}

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}", file=sys.stderr)


def launch(program, arguments, library=None, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_PRELOAD")}
    if library:
        environment["LD_PRELOAD"] = library
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True,
                          timeout=280, **more)


def check_heaps_of_windows(name, program):
    sums = {}
    for heap in ("process", "lfh", "private", "loam"):
        done = subprocess.run([program, *TINY[name][0]], env={**os.environ, "LOAM_LAB_HEAP": heap},
                              capture_output=True,
                              text=True, timeout=280)
        sums[heap] = check_output(name, done, heap)[2].get("checksum")
    check(len(set(sums.values())) == 1, f"the heaps saw different requests: {sums}")
    print(f"{name}: {len(failures)} failures")
    return 1 if failures else 0


def no_such_number(text):
    raise ValueError(f"{text} is not JSON")


def objects(text, where):
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found.append(json.loads(line, parse_constant=no_such_number))
        except ValueError as error:
            check(False, f"{where}: line {number} is not JSON ({error}): {line[:100]}")
    return found


def check_keys(line, contract, where):
    for key, kind in contract.items():
        check(key in line, f"{where}: no key {key}")
        value = line.get(key)
        good = isinstance(value, kind) and not isinstance(value, bool)
        check(good, f"{where}: {key} is {value!r}")
        if isinstance(value, (int, float)) and key not in ("overhead", "x"):
            check(value >= 0 and math.isfinite(value), f"{where}: {key} is {value}")


def check_checkpoint(line, before, where):
    check_keys(line, CHECKPOINT, where)
    latency = line.get("latency_ns")
    if latency is not None:
        p = [latency.get(k, -1) for k in ("p50", "p99", "p999", "max")]
        check(0 <= p[0] <= p[1] <= p[2] <= p[3], f"{where}: latency out of order: {p}")
    check(line["peak_resident_bytes"] >= line["resident_bytes"], f"{where}: peak below resident")
    check(line["lazyfree_bytes"] + line["huge_bytes"] <= 2 * line["resident_bytes"],
          f"{where}: parts exceed the whole")
    check((line["overhead"] is None) == (line["live_bytes"] == 0),
          f"{where}: overhead {line['overhead']} with {line['live_bytes']} live")
    for key in ("minor_faults", "major_faults", "user_seconds", "system_seconds"):
        # The kernel's split of time into user and system may move back by a tick.
        slack = 0.02 if key.endswith("seconds") else 0
        check(line[key] + slack >= before.get(key, 0), f"{where}: {key} fell")


def check_output(name, done, where):
    """Checks a whole run; returns (start, checkpoints, end)."""
    check(done.returncode == 0, f"{where}: status {done.returncode}: {done.stderr[:500]}")
    check(done.stderr == "", f"{where}: said on standard error: {done.stderr[:500]}")
    lines = objects(done.stdout, where)
    types = [line.get("type") for line in lines]
    good = len(lines) >= 2 and types == ["start"] + ["checkpoint"] * (len(lines) - 2) + ["end"]
    check(good, f"{where}: lines are {types[:5]} ... {types[-2:]}")
    if not good:
        sys.exit(1)
    start, checkpoints, end = lines[0], lines[1:-1], lines[-1]
    check_keys(start, START, where + " start")
    check(start["workload"] == name and start["version"] == 1, f"{where}: another workload")
    check(start["machine"].get("cores", 0) > 0 and start["machine"].get("memory_bytes", 0) > 0,
          f"{where}: machine is {start['machine']}")
    check_keys(end, END, where + " end")
    before, seen = {}, set()
    for line in checkpoints:
        here = f"{where} {line.get('series')} {line.get('index')}"
        check_checkpoint(line, before, here)
        before = line
        identity = (line["variant"], line["series"], line["index"])
        check(identity not in seen, f"{here}: twice")
        seen.add(identity)
    if "unavailable" in end:
        check(not checkpoints and start.get("available") is False, f"{where}: half available")
    else:
        check(len(checkpoints) > 0, f"{where}: no checkpoint")
        check(re.fullmatch("[0-9a-f]{16}", end.get("checksum", "")), f"{where}: no checksum")
    return start, checkpoints, end


def check_article_003(program):
    """buffer-cache gives the published figures of the article, to the last digit."""
    published = {0: (1, 400, 400), 100: (7, 4300, 106600), 200: (5, 1800, 103800),
                 300: (19, 9800, 115800), 400: (13, 5100, 114000), 500: (7, 2500, 28100),
                 37200: (65, 129000, 2097100), 37300: (55, 18100, 2031400),
                 37500: (43, 10700, 1869100), 37900: (91, 29600, 1911900)}
    cured = {0: 400, 100: 4400, 200: 1800, 300: 9800, 500: 2600, 37200: 130100, 37900: 30600}
    done = launch(program, ["--steps", "37900", "--depth", "1"])
    _, checkpoints, _ = check_output("buffer-cache", done, "article 003")
    figures = {(c["variant"], c["x"]): (c["buffers"], c["bytes_needed"], c["bytes_allocated"])
               for c in checkpoints}
    for step, expected in published.items():
        found = figures.get(("largest", step))
        check(found == expected, f"article 003: step {step}: {found}, published {expected}")
    for step, allocated in cured.items():
        found = figures.get(("cure", step), (0, 0, 0))[2]
        check(found == allocated, f"article 003, cure: step {step}: {found}, not {allocated}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TINY)
    parser.add_argument("--program", required=True)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--library", help="an allocator to preload")
    which.add_argument("--windows", action="store_true")
    a = parser.parse_args()
    if a.windows:
        sys.exit(check_heaps_of_windows(a.name, a.program))
    arguments, others, seeded = TINY[a.name]

    for extra in [[]] + others:
        where = " ".join(extra) or "usual"
        system = check_output(a.name, launch(a.program, arguments + extra), f"{where}, system")
        loam = check_output(a.name, launch(a.program, arguments + extra, a.library),
                            f"{where}, preloaded")
        sums = [run[2].get("checksum") for run in (system, loam)]
        if all("unavailable" not in run[2] for run in (system, loam)):
            check(sums[0] == sums[1], f"{where}: two allocators saw different requests: {sums}")
        again = launch(a.program, arguments + extra + ["--seed", "2"])
        other = check_output(a.name, again, f"{where}, seed 2")[2].get("checksum")
        if seeded:
            check(other != sums[0], f"{where}: another seed gave the same requests")
        else:
            check(other == sums[0], f"{where}: the seed changed what does not depend on it")

    for arguments_, named in BAD[""] + BAD.get(a.name, []):
        done = launch(a.program, arguments_)
        where = " ".join(arguments_)
        check(done.returncode == 2, f"{where}: status {done.returncode}, not 2")
        check(done.stdout == "", f"{where}: wrote to standard output")
        check(done.stderr.startswith(a.name + ": ") and named in done.stderr,
              f"{where}: the message does not name {named}: {done.stderr!r}")

    done = launch(a.program, ["--help"])
    check(done.returncode == 0 and "Usage: " + a.name in done.stdout and not done.stderr, "--help")
    for parameter in system[0]["parameters"]:
        check(f"--{parameter} " in done.stdout, f"--help does not list --{parameter}")

    with open("/dev/full", "w") as full:
        done = subprocess.run([a.program, *arguments], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=280)
    check(done.returncode == 1 and "standard output" in done.stderr,
          f"full disk: status {done.returncode}, {done.stderr!r}")

    if a.name == "buffer-cache":
        check_article_003(a.program)
    print(f"{a.name}: {len(failures)} failures")
    sys.exit(1 if failures else 0)


main()
