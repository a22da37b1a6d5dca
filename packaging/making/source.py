"""The source tree: its version, its files, its date."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class Failed(Exception):
    """What could not be made, and why."""


def version() -> str:
    """As in 0.1.0. include/loam/loam.h has it for library, tool and packages."""
    text = (ROOT / "include/loam/loam.h").read_text()
    found = re.search(r"^#define LOAM_HEADER_VERSION (\d+)$", text, re.M)
    if found is None:
        raise Failed("include/loam/loam.h has no line `#define LOAM_HEADER_VERSION NUMBER`")
    number = int(found[1])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def epoch() -> int:
    """Seconds since 1970 that every packed file bears: SOURCE_DATE_EPOCH, or the last commit's
    time."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    asked = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],
                           capture_output=True, text=True)
    # 2026-01-01: sources without a history.
    return int(asked.stdout) if asked.returncode == 0 and asked.stdout.strip() else 1767225600


def files(*folders: str) -> list[str]:
    """Names of the tracked files below folders, or of all files where there is no history;
    sorted."""
    asked = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                            "--exclude-standard",
                            "--", *folders], capture_output=True, text=True)
    if asked.returncode == 0:
        names = [name for name in asked.stdout.split("\0") if name]
    else:
        names = [str(path.relative_to(ROOT)) for folder in folders
                 for path in (ROOT / folder).rglob("*")]
    return sorted({name for name in names if (ROOT / name).is_file()})


def run(command: list[str | Path], log: Path | None = None, **environment: str) -> str:
    """Runs a command to its end; its output, or its last words as a failure."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True,
                          errors="replace", env={**os.environ, **environment})
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(done.stdout)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise Failed(f"{' '.join(words[:8])}: exit status {done.returncode}\n{tail}")
    return done.stdout
