"""The Rust crates libloam-sys and loam-alloc: assembled from the sources, packed by cargo, which
gives every file the same date."""
from __future__ import annotations

import shutil
from pathlib import Path

from .source import ROOT, Failed, files, run, version

NAMES = ("libloam-sys", "loam-alloc")


def assemble(folder: Path) -> None:
    """A workspace with both crates, as cargo wants them."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in NAMES:
        for file in files(f"packaging/crates/{name}"):
            put(ROOT / file, folder / name / Path(file).relative_to(f"packaging/crates/{name}"))
        put(ROOT / "LICENSE", folder / name / "LICENSE")
    vendored = folder / "libloam-sys" / "loam"
    (folder / "libloam-sys" / "entry.cpp").rename(vendored.parent / "entry.tmp")
    for file in files("src", "include"):
        if file.endswith((".h", ".hpp", ".cpp")) or file == "src/compiler_flags.txt":
            put(ROOT / file, vendored / file)
    (vendored.parent / "entry.tmp").rename(vendored / "entry.cpp")
    (folder / "Cargo.toml").write_text(
        '[workspace]\nresolver = "3"\nmembers = ["libloam-sys", "loam-alloc"]\n')
    put(ROOT / "packaging/crates/Cargo.lock", folder / "Cargo.lock")


def put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    data = source.read_bytes()
    if source.name in ("Cargo.toml", "Cargo.lock", "README.md"):
        data = data.replace(b"@VERSION@", version().encode())
    target.write_bytes(data)


def make(work: Path, out: Path, _: list[str]) -> list[Path]:
    """The two .crate files."""
    folder = work / "crates"
    assemble(folder)
    # Not verified here: that would compile both, and the tests do it from the packed files.
    run([ROOT / "tools/cargo", "package", "--manifest-path", folder / "Cargo.toml", "--workspace",
         "--no-verify",
         "--allow-dirty", "--quiet", "--target-dir", work / "crates-target"])
    made = []
    for name in NAMES:
        packed = work / "crates-target/package" / f"{name}-{version()}.crate"
        if not packed.is_file():
            raise Failed(f"cargo package made no {packed.name}")
        shutil.copyfile(packed, out / packed.name)
        made.append(out / packed.name)
    return made
