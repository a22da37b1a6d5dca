"""python3 runs a part of its own standard test suite, with its object allocator switched off."""
from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
from harness import Failure, Side, expect_equal, run

# Tests that allocate: containers, text, numbers, compression, a parser in C, threads, fork.
LONG = ["test_long", "test_re", "test_bytes", "test_set", "test_deque", "test_heapq"]
MODULES = ["test_json", "test_dict", "test_list", "test_gc", "test_zlib", "test_xml_etree",
           "test_threading", "test_fork1"]

# These tests give their threads two seconds to meet. On a busy machine that may be too short with
# any malloc.
TIMED = ["BarrierTests"]

RESULT = re.compile(r"^(\S+ \([\w.]+\)).* \.\.\. (ok|skipped|FAIL|ERROR|expected failure)\b", re.M)


def results(side: Side, folder: Path) -> list[str]:
    """One line for each test, sorted by name, because Python chooses the order of running."""
    work = folder / side.name.replace(" ", "-")
    work.mkdir()
    modules = MODULES + (LONG if harness.is_long else [])
    left_out = [word for name in TIMED for word in ("-i", f"test.test_threading.{name}.*")]
    finished = run(side, ["/usr/bin/python3", "-m", "test", "-v", *left_out, *modules], folder=work,
                   timeout=900,
                   environment={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"},
                   program="python3")
    text = finished.output + finished.errors
    for module in modules:
        if f"] {module}" not in text:
            raise Failure(f"{side.name}: {module} did not run")
    return sorted(f"{name} {outcome}" for name, outcome in RESULT.findall(text))


def python(system: Side, loam: Side, folder: Path) -> str:
    # Beside each other, because half of the time some test waits.
    with ThreadPoolExecutor(2) as sides:
        expected, found = sides.map(lambda side: results(side, folder), (system, loam))
    if len(expected) < 500:
        raise Failure(f"only {len(expected)} test results were recognised in Python's output")
    expect_equal("the list of test results", "\n".join(expected), "\n".join(found))
    return f"{len(found)} of its own tests end as they do on the system's malloc"
