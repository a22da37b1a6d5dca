"""Fetches the peers' sources through the registries' ordinary clients.

Cargo.lock pins version and checksum of every crate, and wheels.txt those of every wheel; cargo and
pip refuse anything else. The fetched sources stay in build/peers/sources/, so a second run needs no
network.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


class FetchError(Exception):
    """The sources could not be fetched. The text gives the reason and the remedy."""


def locked_crates():
    """Name -> (version, checksum) as Cargo.lock pins them."""
    text = (HERE / "Cargo.lock").read_text()
    entries = re.findall(
        r'\[\[package\]\]\nname = "([^"]+)"\nversion = "([^"]+)"'
        r'(?:\nsource = "[^"]+"\nchecksum = "([^"]+)")?',
        text,
    )
    return {name: (version, checksum) for name, version, checksum in entries}


def locked_wheels():
    """Name -> (version, checksum) as wheels.txt pins them."""
    text = (HERE / "wheels.txt").read_text()
    return {
        name: (version, checksum)
        for name, version, checksum in re.findall(
            r"^([\w-]+)==(\S+) --hash=sha256:([0-9a-f]{64})", text, re.M
        )
    }


def _run(command, cwd, log):
    try:
        with open(log, "w") as out:
            status = subprocess.run(
                command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT
            ).returncode
    except FileNotFoundError:
        raise FetchError(f"'{command[0]}' is not installed") from None
    if status:
        lines = [
            line for line in Path(log).read_text(errors="replace").splitlines() if line.strip()
        ]
        reason = lines[-1].strip() if lines else f"status {status}"
        raise FetchError(f"'{' '.join(command[:2])}' failed: {reason}")


def crates(sources, log):
    """Fetches sources/crates/NAME-VERSION of every locked crate if needed; returns that folder."""
    target = sources / "crates"
    lock_copy = target / "Cargo.lock"
    lock_text = (HERE / "Cargo.lock").read_text()
    if lock_copy.exists() and lock_copy.read_text() == lock_text:
        return target
    if target.exists():
        shutil.rmtree(target)
    sources.mkdir(parents=True, exist_ok=True)
    _run(
        [
            str(HERE.parent / "cargo"),  # finds one that works and is new enough
            "vendor",
            "--locked",
            "--versioned-dirs",
            "--manifest-path",
            str(HERE / "Cargo.toml"),
            str(target),
        ],
        sources,
        log,
    )
    # Written last, so its presence means that the folder is complete.
    lock_copy.write_text(lock_text)
    return target


def crate_folder(folder, name):
    """The folder of a crate that `crates` fetched."""
    version, _ = locked_crates()[name]
    path = folder / f"{name}-{version}"
    if not path.is_dir():
        raise FetchError(f"crate {name} {version} is not among the vendored sources")
    return path


def wheel(sources, name, log):
    """Fetches and unpacks one pinned wheel; returns the folder that holds its files."""
    version, _ = locked_wheels()[name]
    target = sources / "wheels" / f"{name}-{version}"
    if target.is_dir():
        return target
    download = sources / "wheels" / "download"
    download.mkdir(parents=True, exist_ok=True)
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--require-hashes",
            "--dest",
            str(download),
            "--requirement",
            str(HERE / "wheels.txt"),
        ],
        sources,
        log,
    )
    found = sorted(download.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if not found:
        raise FetchError(f"pip brought no wheel of {name} {version} for this machine")
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(found[0]) as archive:
        archive.extractall(partial)
    partial.rename(target)
    return target
