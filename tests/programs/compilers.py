"""g++ preprocesses, compiles and links a translation unit that is heavy on headers."""
from __future__ import annotations

import shutil
from pathlib import Path

from harness import Failure, Side, expect_equal, expect_same_file, run

SOURCE = Path(__file__).resolve().parent / "inputs" / "translation_unit.cpp"


def build(side: Side, folder: Path) -> tuple[Path, str]:
    """Both sides work in a folder of the same depth and pass the same names, so that only malloc
    can make the outputs differ."""
    work = folder / side.name.replace(" ", "-")
    work.mkdir()
    shutil.copy(SOURCE, work / "unit.cpp")
    options = ["-std=c++20", "-frandom-seed=loam"]
    run(side, ["g++", *options, "-E", "unit.cpp", "-o", "unit.ii"], folder=work, timeout=300)
    compiled = run(side, ["g++", *options, "-O1", "-c", "unit.cpp", "-o", "unit.o"], folder=work,
                   timeout=900)
    # At least the driver, the compiler proper and the assembler.
    if compiled.processes < 3:
        raise Failure(f"{side.name}: g++ started {compiled.processes} processes, not 3 or more")
    run(side, ["g++", "unit.o", "-o", "unit"], folder=work, timeout=300)
    return work, run(side, ["./unit"], folder=work, timeout=300).output


def cxx(system: Side, loam: Side, folder: Path) -> str:
    system_work, expected = build(system, folder)
    loam_work, found = build(loam, folder)
    for name in ("unit.ii", "unit.o", "unit"):
        expect_same_file(name, system_work / name, loam_work / name)
    expect_equal("the compiled program's output", expected, found)
    lines = (loam_work / "unit.ii").read_bytes().count(b"\n")
    return f"{lines} preprocessed lines compile and link to the same bytes"
