#!/usr/bin/env python3
"""Compiles and runs the C++ examples of a document. Every fenced block marked cpp is the body of a
function of one program, in the document's order.

    tests/cxx/check_examples.py DOCUMENT --include DIR --library FILE --compiler PATH

Exit status: 0 all compile and run, 1 one does not.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PREAMBLE = """#include "loam/loam.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("document", type=Path)
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--compiler", required=True)
    a = parser.parse_args()
    text = a.document.read_text()
    examples = [(text.count("\n", 0, m.start(1)) + 1, m.group(1))
                for m in re.finditer(r"^```cpp\n(.*?)^```$", text, re.M | re.S)]
    if not examples:
        sys.exit(f"{a.document}: no example marked cpp")
    source = PREAMBLE
    for line, body in examples:
        # The compiler then names the document and its line.
        source += f'static void example_{line}() {{\n#line {line} "{a.document.name}"\n{body}}}\n'
    source += "int main() {\n" + "".join(f"  example_{n}();\n" for n, _ in examples) + "}\n"
    with tempfile.TemporaryDirectory(prefix="loam-examples-") as work:
        program = Path(work) / "examples"
        (Path(work) / "examples.cpp").write_text(source)
        for command in ([a.compiler, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Wconversion",
                         "-Werror", f"-I{a.include}", str(program) + ".cpp", "-o", str(program),
                         str(a.library), f"-Wl,-rpath,{a.library.parent}", "-pthread"],
                        [str(program)]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=200)
            if done.returncode != 0:
                sys.exit(f"{Path(command[0]).name}: status {done.returncode}\n{done.stderr[:4000]}")
    print(f"{len(examples)} examples of {a.document.name} compile and run")


main()
