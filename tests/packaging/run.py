#!/usr/bin/env python3
"""Uses the library the ways its users do: find_package, pkg-config, add_subdirectory, each shared
and static, from an installed tree that has been moved away from the sources.

    tests/packaging/run.py CASE --source DIR --build DIR    CASE: find_package | pkg_config |
                                                            add_subdirectory
"""
from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

CONSUMER = Path(__file__).resolve().parent / "consumer"


def run(*command: str | Path, **environment: str) -> str:
    print("+", shlex.join(map(str, command)), flush=True)
    done = subprocess.run(list(map(str, command)), env={**os.environ, **environment},
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"exit status {done.returncode}")
    return done.stdout


def install(build: Path, prefix: Path) -> Path:
    """Returns the library folder (lib, or lib/x86_64-linux-gnu)."""
    run("cmake", "--install", build, "--prefix", prefix)
    found = list(prefix.rglob("libloam.so"))
    if len(found) != 1:
        sys.exit(f"one libloam.so expected under {prefix}, found {found}")
    return found[0].parent


def expect_served(program: Path, **environment: str) -> None:
    if run(program, **environment).strip() != "served by loam":
        sys.exit(f"{program.name} did not say that it was served by loam")


def build_consumer(folder: Path, *arguments: str) -> None:
    run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
        *arguments)
    run("cmake", "--build", folder)
    for name in ("shared", "static"):
        expect_served(folder / name)


def find_package(source: Path, build: Path, work: Path) -> None:
    install(build, work / "prefix")
    build_consumer(work / "consumer", "-DLOAM_HOW=find_package",
                   f"-DCMAKE_PREFIX_PATH={work / 'prefix'}")


def add_subdirectory(source: Path, build: Path, work: Path) -> None:
    build_consumer(work / "consumer", "-DLOAM_HOW=add_subdirectory", f"-DLOAM_SOURCE={source}")
    # A parent project must not get our tests, workloads or install rules.
    listing = run("cmake", "--build", work / "consumer", "--target", "help")
    for stray in ("unit_", "preload_", "workload_"):
        if stray in listing:
            sys.exit(f"add_subdirectory brings targets named {stray}*")


def pkg_config(source: Path, build: Path, work: Path) -> None:
    prefix = work / "prefix"
    library = install(build, prefix)
    description = library / "pkgconfig" / "loam.pc"
    environment = {"PKG_CONFIG_PATH": str(description.parent)}
    if run("pkg-config", "--modversion", "loam", **environment).count(".") != 2:
        sys.exit("pkg-config knows no version")
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "loam", **environment))
    run("g++", "-std=c++20", CONSUMER / "consumer.cpp", "-o", work / "shared", *flags, "-ldl")
    expect_served(work / "shared", LD_LIBRARY_PATH=str(library))
    run("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", CONSUMER / "plain.c", "-o",
        work / "plain", *flags)
    expect_served(work / "plain", LD_LIBRARY_PATH=str(library))
    # Static, by the C driver alone: nothing of a C++ library may be needed.
    run("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", CONSUMER / "plain.c", "-o",
        work / "plain_static", f"-I{prefix / 'include'}", library / "libloam.a")
    expect_served(work / "plain_static")


def main() -> None:
    cases = {case.__name__: case for case in (find_package, pkg_config, add_subdirectory)}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("case", choices=sorted(cases))
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="loam-packaging-") as work:
        cases[arguments.case](arguments.source.resolve(), arguments.build.resolve(), Path(work))


if __name__ == "__main__":
    main()
