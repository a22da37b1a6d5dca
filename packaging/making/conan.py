"""The Conan recipe needs no building: it is in the sources. A copy goes with the packages."""
from __future__ import annotations

from pathlib import Path

from . import archive
from .source import ROOT, files, version


def make(_: Path, out: Path, __: list[str]) -> list[Path]:
    entries = {name: archive.of_file(ROOT / name)
               for name in files("packaging/conan", "packaging/vcpkg")}
    target = out / f"loam-{version()}-recipes.tar.gz"
    target.write_bytes(archive.compressed(archive.tar(entries)))
    return [target]
