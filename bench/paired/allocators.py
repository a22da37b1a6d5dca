"""The compared allocators: the heap under judgement and its peers.

Names come from `loam allocators --json`, the one catalogue; a path to a shared object is an
allocator too, named after its file, so that two builds of the same heap can be compared.
"""

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .errors import SetupError, UsageError, not_built

MEMORY_SUFFIX = ":memory"


@dataclass(frozen=True)
class Allocator:
    """One allocator, ready to be preloaded (the system's has no path)."""

    name: str
    version: str
    source: str
    path: Path | None
    environment: dict = field(default_factory=dict, hash=False)

    def preloaded(self, settings):
        """The environment of a program that runs on it: the caller's, without another allocator and
        without options of the heap, and with these settings."""
        kept = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"
                and not k.startswith("LOAM_")}
        own = {"LD_PRELOAD": str(self.path)} if self.path else {}
        return kept | self.environment | settings | own

    def describe(self, repository):
        """For the results file: no absolute paths, and a digest that identifies the file."""
        path = self.path
        if path and path.is_relative_to(repository):
            path = path.relative_to(repository)
        return {
            "version": self.version,
            "source": self.source,
            "file": str(path) if path and not path.is_absolute() else path and path.name,
            "sha256": hashlib.sha256(self.path.read_bytes()).hexdigest() if self.path else None,
            "environment": self.environment,
        }


class Catalogue:
    """Every allocator that this machine has, by name."""

    def __init__(self, repository, tool):
        self.repository = repository
        self.entries = self._ask(tool)

    @staticmethod
    def _ask(tool):
        try:
            answer = subprocess.run(
                [str(tool), "allocators", "--json"], capture_output=True, text=True, check=True
            ).stdout
            listing = json.loads(answer)
        except FileNotFoundError:
            raise SetupError(not_built(tool)) from None
        except subprocess.CalledProcessError as error:
            raise SetupError(f"{tool} allocators failed: {error.stderr.strip()}") from None
        except ValueError:
            raise SetupError(f"{tool} allocators --json did not print JSON") from None
        if listing.get("format") != "loam-allocators" or listing.get("version") != 1:
            raise SetupError(f"{tool} speaks another version of the allocators listing than 1")
        return {entry["name"]: entry for entry in listing["allocators"]}

    def find(self, name):
        """The allocator of that name, or the one in that file."""
        if "/" in name or name.endswith(".so"):
            return self.from_file(name)
        bare = name.removesuffix(MEMORY_SUFFIX)
        entry = self.entries.get(bare)
        if entry is None:
            known = ", ".join(self.entries)
            raise UsageError(f"no allocator is called '{bare}'; there are {known}, or a path")
        if entry["status"] != "found":
            raise SetupError(f"{bare}: {entry['reason']} ({entry['remedy'] or 'no remedy known'})")
        environment = dict(entry["environment"])
        if name != bare:
            if not entry["memory_environment"]:
                raise UsageError(f"{bare} has no settings that trade speed for memory")
            environment.update(entry["memory_environment"])
        path = Path(entry["path"]) if entry["path"] and bare != "system" else None
        if path and not path.is_absolute():
            path = self.repository / path
        return Allocator(name, entry["version"] or "unknown", entry["source"], path, environment)

    @staticmethod
    def from_file(text):
        path = Path(text).resolve()
        if not path.is_file():
            raise UsageError(f"no such file: {text}")
        return Allocator(text, "as built", "file", path)

    def peers(self, subject):
        """The peers of the subject, and the absent ones with the reason."""
        found, absent = [], {}
        for name, entry in self.entries.items():
            if name in (subject.name, "loam"):
                continue
            if entry["status"] == "found":
                found.append(self.find(name))
            else:
                absent[name] = entry["reason"] or entry["status"]
        return found, absent
