#!/usr/bin/env python3
"""The tests' own dependencies give no dependency of the tool another feature. If they did, cargo
would build that crate, all that need it, and the tool a second time for the tests.

    tests/checks/check_features.py [--self-test]

Exit status: 0 none does, 1 one does, 77 cargo cannot say without the registry.
"""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def features(edges: str) -> dict[str, str]:
    """By crate and version."""
    done = subprocess.run([ROOT / "tools/cargo", "tree", "--manifest-path",
                           ROOT / "tool/Cargo.toml",
                           "--offline", "--locked", "--workspace", "--edges", edges, "--prefix",
                           "none",
                           "--format", "{p} | {f}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(77)
    lines = (line.removesuffix(" (*)") for line in done.stdout.splitlines() if " | " in line)
    return dict(line.split(" | ", 1) for line in lines)


def others(built: dict[str, str], tested: dict[str, str]) -> list[str]:
    return [f"{name}: '{built[name]}' for the tool, '{tested[name]}' for the tests"
            for name in sorted(built) if tested.get(name) != built[name]]


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        found = others({"a 1": "std", "b 1": ""}, {"a 1": "std", "b 1": "std", "c 1": ""})
        assert found == ["b 1: '' for the tool, 'std' for the tests"], found
        return 0
    found = others(features("normal,build"), features("normal,build,dev"))
    print("\n".join(found))
    if found:
        print("Name these crates, with the tests' features, in tool/Cargo.toml and "
              "tool/loam-cli/Cargo.toml.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
