#!/usr/bin/env python3
"""Applies the patches of docs/walkthrough.md to a copy of the sources, compiles what they change,
and runs it.

    check_patches.py [--compiler g++]

Each patch changes two files: so much, and no more, is what such a change touches. Exit status: 0
all is as the page says, 1 something is not.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = "docs/walkthrough.md"
FLAGS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-Isrc", "-Iinclude"]

# The longest magazine of 64-byte blocks, by the rules alone.
LONGEST = r"""
#include <cstdio>
#include "cache/cache_budget.h"
int main() {
  const loam::CacheBudget budget;
  unsigned capacity = 0;
  while (const unsigned next = budget.next(64, capacity, true, size_t{1} << 30).capacity)
    capacity = next;
  printf("%u\n", capacity);
}
"""

# The new observer, alone around a call that it watches and one that it does not.
OBSERVER = r"""
#include <cstdio>
#include "heap/observed.h"
int main() {
  using namespace loam;
  using Alone = Nest<AlignmentWatch>;
  const auto serve = [] { return static_cast<void*>(&taken_detours); };
  const Call call{.bytes = 100, .alignment = 64};
  Alone::serve<kAllocateAligned>(call, serve);
  take_rare_detour(AlignmentWatch::kDetour);
  Alone::serve<kAllocateAligned>(call, serve);
  Alone::serve<kAllocate>(call, serve);
  printf("%llu\n", static_cast<unsigned long long>(AlignmentWatch::counts[6].load()));
}
"""


class Failure(Exception):
    pass


def run(tree, *command):
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def copy_of_sources(folder):
    tree = Path(folder)
    for name in ("src", "include"):
        shutil.copytree(ROOT / name, tree / name)
    # What docs/check_options.py reads besides.
    for name in (PAGE, "docs/check_options.py", "docs/options.md", "docs/tuning.md",
                 "tools/gen_size_classes.py"):
        (tree / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    return tree


def output_of(tree, compiler, program, *sources):
    (tree / "program.cpp").write_text(program)
    run(tree, compiler, *FLAGS, "program.cpp", *sources, "-o", "program")
    return run(tree, "./program").strip()


def must_be(what, found, wanted):
    if found != wanted:
        raise Failure(f"{what}: {found}, not {wanted}")


def try_longest_magazine(patch, compiler):
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_sources(folder)
        must_be("the longest magazine before", output_of(tree, compiler, LONGEST), "2048")
        run(tree, "git", "apply", "--unidiff-zero", patch)
        must_be("the longest magazine with the patch", output_of(tree, compiler, LONGEST), "4032")
        # The arrays of the default heap, and the caches of private heaps, still have room for it.
        for source in ("src/cache/magazine_arrays.cpp", "src/cache/thread_cache.cpp",
                       "src/private/private_cache.cpp"):
            run(tree, compiler, *FLAGS, "-fsyntax-only", source)
        run(tree, sys.executable, "docs/check_options.py")


def try_observer(patch, compiler):
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_sources(folder)
        run(tree, "git", "apply", "--unidiff-zero", patch)
        must_be("what the new observer counts",
                output_of(tree, compiler, OBSERVER, "src/observers/detours.cpp"), "1")
        run(tree, compiler, *FLAGS, "-fsyntax-only", "src/heap/observed.cpp")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--compiler", default="g++")
    compiler = parser.parse_args().compiler
    patches = re.findall(r"^```diff\n(.*?)^```$", (ROOT / PAGE).read_text(), re.M | re.S)
    tries = [try_longest_magazine, try_observer]
    try:
        must_be(f"patches in {PAGE}", len(patches), len(tries))
        for patch, attempt in zip(patches, tries):
            must_be("files of a patch", len(re.findall(r"^diff --git ", patch, re.M)), 2)
            with tempfile.NamedTemporaryFile("w", suffix=".patch") as file:
                file.write(patch)
                file.flush()
                attempt(file.name, compiler)
    except Failure as failure:
        print(f"check_patches: {failure}")
        return 1
    print("check_patches: both apply, compile and do what the page says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
