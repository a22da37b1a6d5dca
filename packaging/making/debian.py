"""The Debian packages libloam1, libloam-dev and loam-tools: dpkg-buildpackage on a copy of the
sources with packaging/debian as its debian folder, and the tool as every package has it."""
from __future__ import annotations

import os
import shutil
from email.utils import formatdate
from pathlib import Path

from . import native, tool
from .source import ROOT, Failed, epoch, files, run, version

NEEDED = ("CMakeLists.txt", "CMakePresets.json", "LICENSE", "Makefile", "include", "native",
          "packaging", "src")


def assemble(folder: Path, program: Path) -> None:
    for name in files(*NEEDED):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    debian = folder / "debian"
    shutil.copytree(ROOT / "packaging/debian", debian)
    triplet = run(["dpkg-architecture", "-qDEB_HOST_MULTIARCH"]).strip()
    links = debian / "loam-tools.links.in"
    (debian / "loam-tools.links").write_text(links.read_text().replace("@TRIPLET@", triplet))
    links.unlink()
    (debian / "changelog").write_text(
        f"loam ({version()}) unstable; urgency=medium\n\n  * What changed is in the sources' "
        f"CHANGELOG.md.\n\n"
        f" -- The Loam authors <loam@example.org>  {formatdate(epoch())}\n")
    licence = (ROOT / "LICENSE").read_text().split("\n\n", 2)[-1]
    body = "".join(f" {line.strip() or '.'}\n" for line in licence.strip().splitlines())
    with (debian / "copyright").open("a") as copyright_file:
        copyright_file.write(f"License: Expat\n{body}")
    (folder / "build/cargo/release").mkdir(parents=True)
    shutil.copy(program, folder / "build/cargo/release/loam")
    if not (ROOT / "build/share").is_dir():
        raise Failed("there is no build/share; run `make tool`")
    shutil.copytree(ROOT / "build/share", folder / "build/share")
    # A package keeps the dates of older files; a file is as old as the checkout.
    for path in folder.rglob("*"):
        os.utime(path, (epoch(), epoch()))


def make(work: Path, out: Path, _: list[str]) -> list[Path]:
    for command in ("dpkg-buildpackage", "dh"):
        if shutil.which(command) is None:
            raise Failed(f"{command} is not here; `tools/setup test` installs it")
    top = work / "debian"
    shutil.rmtree(top, ignore_errors=True)
    folder = top / f"loam-{version()}"
    assemble(folder, tool.program(native.VARIANTS["x86_64-gnu"], work))
    # -d: what Build-Depends names may have come another way (rustup's cargo).
    run(["sh", "-c", 'cd "$1" && exec dpkg-buildpackage --build=binary --no-sign -d', "sh", folder],
        top / "build.log", SOURCE_DATE_EPOCH=str(epoch()),
        DEB_BUILD_OPTIONS=f"nocheck {os.environ.get('DEB_BUILD_OPTIONS', '')}")
    made = []
    for package in sorted(top.glob("*.deb")):
        shutil.copyfile(package, out / package.name)
        made.append(out / package.name)
    return made
