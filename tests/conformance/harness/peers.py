"""Other allocators that are installed here, for the comparison in the docs."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

# Name in the table, Debian package, shared object.
KNOWN = (
    ("jemalloc", "libjemalloc2", "libjemalloc.so.2"),
    ("mimalloc", "libmimalloc2.0", "libmimalloc.so.2"),
)


def _version(package: str) -> str:
    if shutil.which("dpkg-query") is None:
        return ""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package],
                          capture_output=True, text=True, check=False)
    return done.stdout.split("-")[0].split("+")[0] if done.returncode == 0 else ""


def installed() -> dict[str, pathlib.Path]:
    """The peers that are installed, by the name that the table gives them."""
    found = {}
    for name, package, library in KNOWN:
        for path in sorted(pathlib.Path("/usr/lib").glob(f"*-linux-gnu/{library}")):
            found[f"{name} {_version(package)}".strip()] = path
            break
    return found
