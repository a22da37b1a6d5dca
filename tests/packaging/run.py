#!/usr/bin/env python3
"""Uses the library in the ways of its users: find_package, pkg-config, add_subdirectory, each
shared and static, from an installed tree that has been moved away from the sources.

    tests/packaging/run.py CASE --source DIR --build DIR

CASE: find_package, pkg_config, add_subdirectory, fetch_content (the page's lines, configured),
uninstall, headers (all are installed; each C header compiles alone, in every language version that
it is meant for, without a warning), or tool (the installed tool finds the installed library; its
manual pages and completions are there).
"""
from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from page import INSTALL, block

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


def expect_served(program: Path, *arguments: Path, **environment: str) -> None:
    if run(program, *arguments, **environment).strip() != "served by loam":
        sys.exit(f"{program.name} did not say that it was served by loam")


def build_consumer(folder: Path, build_type: str, *arguments: str) -> None:
    run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", folder, f"-DCMAKE_BUILD_TYPE={build_type}",
        *arguments)
    run("cmake", "--build", folder, "--parallel", "2")
    for name in ("shared", "static", "plain_shared", "plain_static"):
        expect_served(folder / name)
    expect_served(folder / "host", folder / "libplugin.so")
    expect_served(folder / "own_names")
    for name in ("plain_shared", "plain_static", "libplugin.so"):
        needed = run("readelf", "-dW", folder / name)
        if "libstdc++" in needed or "libgcc_s" in needed:
            sys.exit(f"{name}, written in C, needs a C++ run-time library")


def find_package(source: Path, build: Path, work: Path) -> None:
    install(build, work / "prefix")
    build_consumer(work / "consumer", "Release", "-DLOAM_HOW=find_package",
                   f"-DCMAKE_PREFIX_PATH={work / 'prefix'}")
    # The examples are built too, as examples/README.md tells a reader.
    run("cmake", "-G", "Ninja", "-S", source / "examples", "-B", work / "examples",
        f"-DCMAKE_PREFIX_PATH={work / 'prefix'}")
    run("cmake", "--build", work / "examples", "--parallel", "2")


def add_subdirectory(source: Path, build: Path, work: Path) -> None:
    # As a parent project under development has it: the library is compiled in a quarter of the
    # time.
    build_consumer(work / "consumer", "Debug", "-DLOAM_HOW=add_subdirectory",
                   f"-DLOAM_SOURCE={source}")
    # A parent project must not get our tests, workloads or install rules.
    listing = run("cmake", "--build", work / "consumer", "--target", "help")
    for stray in ("unit_", "preload_", "workload_"):
        if stray in listing:
            sys.exit(f"add_subdirectory brings targets named {stray}*")


def fetch_content(source: Path, build: Path, work: Path) -> None:
    """CMake takes the page's lines, in a project that exports a library with the heap."""
    lines = block(INSTALL, "C and C++", "cmake", CLONE=str(source), PROGRAM="program")
    (work / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.24)\nproject(client C CXX)\n"
        f"add_executable(program {CONSUMER / 'plain.c'})\n{lines}"
        f"add_library(export STATIC {CONSUMER / 'plain.c'})\n"
        "target_link_libraries(export PUBLIC loam::loam)\n"
        "install(TARGETS export EXPORT client)\ninstall(EXPORT client DESTINATION lib/cmake)\n")
    run("cmake", "-G", "Ninja", "-S", work, "-B", work / "build")


def uninstall(source: Path, build: Path, work: Path) -> None:
    """`make uninstall` removes what is installed, and nothing else."""
    if build != source / "build/cmake":
        print(f"`make install` knows {source / 'build/cmake'} alone")
        sys.exit(77)
    other = work / "stage/usr/share/man/man1/other.1"
    other.parent.mkdir(parents=True)
    other.write_text("")
    words = ["make", "-C", source, f"DESTDIR={work / 'stage'}", "PREFIX=/usr"]
    run(*words, "-o", "build", "install")
    if not list((work / "stage").rglob("libloam.so")):
        sys.exit("`make install` installed no library")
    run(*words, "uninstall")
    left = [path for path in (work / "stage").rglob("*") if "loam" in path.name or path.is_file()]
    if left != [other]:
        sys.exit(f"`make uninstall` left {left}")


def pkg_config(source: Path, build: Path, work: Path) -> None:
    # The tree was moved after it was installed, so the description must find its prefix from its
    # own location.
    prefix = work / "moved"
    library = prefix / install(build, work / "prefix").relative_to(work / "prefix")
    (work / "prefix").rename(prefix)
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
    # The C driver links statically, so nothing of a C++ library may be needed.
    run("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", CONSUMER / "plain.c", "-o",
        work / "plain_static", f"-I{prefix / 'include'}", library / "libloam.a")
    expect_served(work / "plain_static")


# The C headers also serve C++ programs that are older than the library itself.
VERSIONS_OF_C_HEADERS = (("c", "c99"), ("c", "c11"), ("c", "c17"), ("c++", "c++17"),
                         ("c++", "c++20"))


def headers(source: Path, build: Path, work: Path) -> None:
    """tests/cxx tests the C++ headers. Here they only have to exist and find each other."""
    install(build, work / "prefix")
    include = work / "prefix" / "include"
    installed = {str(path.relative_to(include)) for path in include.rglob("*") if path.is_file()}
    public = source / "include"
    expected = {str(path.relative_to(public)) for path in public.rglob("*.h*")}
    if installed != expected or not expected:
        sys.exit(f"headers of the sources: {sorted(expected)}; installed: {sorted(installed)}")
    compilers = [{"c": c, "c++": cxx} for c, cxx in (("gcc", "g++"), ("clang", "clang++"))
                 if shutil.which(c) and shutil.which(cxx)]
    work_list = [(name, language, version) for name in sorted(installed) if name.endswith(".h")
                 for language, version in VERSIONS_OF_C_HEADERS]
    work_list.append(("loam/loam.hpp", "c++", "c++20"))
    for name, language, version in work_list:
        # Included twice, because include guards are part of the promise.
        unit = work / ("alone.c" if language == "c" else "alone.cpp")
        unit.write_text(f"#include <{name}>\n" * 2 + "int main(void) { return 0; }\n")
        for compiler in compilers:
            run(compiler[language], f"-std={version}", "-Wall", "-Wextra", "-Wpedantic", "-Wundef",
                "-Werror", "-fsyntax-only", f"-I{include}", unit)


VERBS = ("run", "check", "allocators", "lab", "stats", "top", "export")


def tool(source: Path, build: Path, work: Path) -> None:
    if not (source / "build/cargo/release/loam").is_file():
        print("there is no build/cargo/release/loam: run `make tool`")
        sys.exit(77)
    prefix = work / "prefix"
    library = install(build, prefix)
    loam = prefix / "bin" / "loam"
    seen = run(loam, "run", "--", "sh", "-c", "grep -m1 -o '/.*/libloam[.]so' /proc/self/maps")
    if Path(seen.strip()) != library / "libloam.so":
        sys.exit(f"the installed tool preloads {seen.strip()}, not {library}/libloam.so")
    pages = {path.name for path in (prefix / "share/man/man1").iterdir()}
    missing = {"loam.1", *(f"loam-{verb}.1" for verb in VERBS)} - pages
    if missing:
        sys.exit(f"manual pages that are missing: {sorted(missing)}")
    hidden = [name for name in pages if "generate" in name or "watchdog" in name]
    if hidden:
        sys.exit(f"hidden verbs have manual pages: {hidden}")
    if shutil.which("man"):
        warnings = subprocess.run(["man", "--warnings", "-l", prefix / "share/man/man1/loam-lab.1"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if "overwrite" not in warnings.stdout or warnings.stderr:
            sys.exit(f"man can not show loam-lab.1: {warnings.stderr}")
    # What a shell calls at `loam st<Tab>`.
    completions = prefix / "share/bash-completion/completions/loam"
    offered = run("bash", "-c", f"source {shlex.quote(str(completions))}; COMP_WORDS=(loam st); "
                  "COMP_CWORD=1; COMP_LINE='loam st'; COMP_POINT=7; _loam loam st loam; "
                  'echo "${COMPREPLY[@]}"')
    if offered.split() != ["stats"]:
        sys.exit(f"bash completes `loam st` to {offered.split()}")
    for place in ("zsh/site-functions/_loam", "fish/vendor_completions.d/loam.fish"):
        if "stats" not in (prefix / "share" / place).read_text():
            sys.exit(f"{place} does not know `loam stats`")


def main() -> None:
    cases = {case.__name__: case
             for case in (find_package, pkg_config, add_subdirectory, fetch_content, uninstall,
                          headers, tool)}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("case", choices=sorted(cases))
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="loam-packaging-") as work:
        cases[arguments.case](arguments.source.resolve(), arguments.build.resolve(), Path(work))


if __name__ == "__main__":
    main()
