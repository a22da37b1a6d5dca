"""Fetches the suites' sources through the ordinary clients of the package registries.

All files go into the work folder. Nothing is installed into the system except stress-ng, which is a
program and runs as one. Each function leaves what it fetched in place. A second call returns it
without the network.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

from .model import ConformanceError

HERE = pathlib.Path(__file__).resolve().parent.parent
ARCHIVE_KEYS = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def _run(command, cwd, what):
    """Runs a client. If it fails, its last lines become the error message."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    environment.pop("LD_PRELOAD", None)
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=600,
        )
    except FileNotFoundError as error:
        raise ConformanceError(f"cannot {what}: there is no '{command[0]}' on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise ConformanceError(f"cannot {what}: '{command[0]}' did not end in 600 s") from error
    if done.returncode != 0:
        tail = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise ConformanceError(f"cannot {what}: '{' '.join(command[:3])}...' said\n  {tail}")
    return done.stdout


@contextlib.contextmanager
def _staging(folder: pathlib.Path):
    """A folder that gets its name only when it is complete."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _package_version(archives, what):
    """The version in an archive's name, NAME_VERSION_..., which Debian's tools write."""
    for archive in sorted(archives):
        match = re.match(r"[^_]+_([^_]+?)(_[a-z0-9]+\.deb|\.dsc)$", archive.name)
        if match:
            return match[1].replace("%3a", ":")
    raise ConformanceError(f"cannot {what}: the download left no package file")


def debian_package(package: str, folder: pathlib.Path):
    """Downloads and unpacks a binary package as any user can, without installing it."""
    what = f"download Debian package {package}"
    target = folder / "package"
    if not target.is_dir():
        with _staging(target) as partial:
            try:
                _run(["apt-get", "download", package], partial, what)
            except ConformanceError:
                if os.geteuid() != 0:
                    raise
                # On a fresh machine the usual reason is that there are no package lists yet.
                _run(["apt-get", "update"], partial, f"{what} (refresh the package lists)")
                _run(["apt-get", "download", package], partial, what)
            archives = list(partial.glob("*.deb"))
            _package_version(archives, what)
            _run(["dpkg-deb", "-x", archives[0].name, "root"], partial, f"unpack {package}")
    return target / "root", _package_version(target.glob("*.deb"), what)


def debian_source(package: str, folder: pathlib.Path):
    """Downloads a source package with apt lists of its own. So the system's lists do not change,
    and may lack source entries, as they do by default."""
    what = f"download Debian source package {package}"
    target = folder / "package"
    if not target.is_dir():
        fields = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
        listed = _run(
            ["apt-get", "indextargets", "--format", fields, "Created-By: Packages",
             "Origin: Debian"], HERE, what,
        )
        keys = f"[signed-by={ARCHIVE_KEYS}] " if ARCHIVE_KEYS.is_file() else ""
        entries = sorted({f"deb-src {keys}{line}" for line in listed.splitlines() if line})
        if not entries:
            raise ConformanceError(
                f"cannot {what}: apt knows no Debian archive; run apt-get update"
            )
        with _staging(target) as partial:
            for name in ("lists/partial", "cache/archives/partial", "parts"):
                (partial / name).mkdir(parents=True)
            (partial / "sources.list").write_text("\n".join(entries) + "\n", encoding="utf-8")
            options = [
                f"-oDir::Etc::sourcelist={partial}/sources.list",
                f"-oDir::Etc::sourceparts={partial}/parts",
                f"-oDir::State::lists={partial}/lists",
                f"-oDir::Cache={partial}/cache",
                "-oAPT::Sandbox::User=root",
            ]
            _run(["apt-get", *options, "update"], partial, what)
            _run(["apt-get", *options, "source", "--download-only", package], partial, what)
            shutil.rmtree(partial / "lists")
            shutil.rmtree(partial / "cache")
    archives = [path for path in target.iterdir() if ".orig.tar." in path.name]
    if len(archives) != 1:
        raise ConformanceError(f"cannot {what}: expected one original archive in {target}")
    return archives[0], _package_version(target.glob("*.dsc"), what)


def crate(name: str, folder: pathlib.Path):
    """The vendored sources of a crate that crates/Cargo.lock pins by version and checksum."""
    shared = folder.parent / "crates"
    lock = (HERE / "crates/Cargo.lock").read_bytes()
    vendored = shared / "vendor"
    copy = shared / "Cargo.lock"
    if not vendored.is_dir() or not copy.is_file() or copy.read_bytes() != lock:
        with _staging(shared) as partial:
            for file in ("Cargo.toml", "Cargo.lock", "lib.rs"):
                shutil.copy(HERE / "crates" / file, partial / file)
            # The repository's wrapper finds a cargo that works. The one on PATH may be too old, or
            # may be rustup's shim without a toolchain.
            cargo = str(HERE.parent.parent / "tools/cargo")
            what = f"fetch crate {name}"
            _run([cargo, "vendor", "--locked", "--versioned-dirs", "vendor"], partial, what)
    found = [path for path in vendored.glob(f"{name}-*") if path.is_dir()]
    if len(found) != 1:
        raise ConformanceError(f"cannot use crate {name}: it is not in {vendored}")
    return found[0], found[0].name[len(name) + 1:].split("+")[0]


def program(name: str, package: str, folder: pathlib.Path):
    """A program on PATH. It is installed if it is missing and installing is allowed."""
    what = f"install Debian package {package}"
    if shutil.which(name) is None:
        if os.geteuid() != 0:
            raise ConformanceError(
                f"there is no '{name}': install Debian package {package} (as root: "
                f"apt-get install {package})"
            )
        install = ["apt-get", "install", "-y", "--no-install-recommends", package]
        try:
            _run(install, HERE, what)
        except ConformanceError:
            _run(["apt-get", "update"], HERE, f"{what} (refresh the package lists)")
            _run(install, HERE, what)
    version = _run([name, "--version"], HERE, f"ask {name} for its version")
    match = re.search(r"\d+(\.\d+)+", version)
    return folder, match[0] if match else "unknown"


def unpack(folder: pathlib.Path, pattern: str, wanted, into: pathlib.Path):
    """Extracts the wanted files from the one archive that matches; the rest stays packed."""
    archives = sorted(folder.glob(pattern))
    if len(archives) != 1:
        raise ConformanceError(f"expected one {pattern} in {folder}, found {len(archives)}")
    target = into / "unpacked"
    stamp = target / ".wanted"
    listing = "\n".join([archives[0].name, *wanted])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == listing:
        return target
    missing = set(wanted)
    with _staging(target) as partial, tarfile.open(archives[0]) as archive:
        for member in archive:
            inside = member.name.split("/", 1)[-1]
            if inside in missing and member.isfile():
                path = partial / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
                missing.remove(inside)
                if not missing:
                    break
        if missing:
            raise ConformanceError(f"{archives[0].name} lacks {', '.join(sorted(missing))}")
        (partial / ".wanted").write_text(listing, encoding="utf-8")
    return target
