"""The Python package loam-heap: a wheel with the program `loam` and the heap, for glibc or musl.

What a wheel runs on is read from its files: every glibc symbol's version counts, nothing else of
the system may be needed, and the tag says the largest (`tag_of`). `auditwheel` repairs nothing
here: it would rename what LD_PRELOAD names.
"""
from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from . import archive, native, tool
from .source import ROOT, Failed, run, version

NAME = "loam_heap"
# What a wheel may need: the C library's own files, and for the workloads of the lab the C++
# runtime. manylinux allows them all.
ALLOWED = {"gnu": {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6",
                   "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"},
           "musl": {"libc.so"}}

# Of gcc 11's runtime, which the systems of manylinux_2_34 have.
NEWEST_CXX = 29


def entries(variant: native.Variant, work: Path) -> dict[str, archive.Entry]:
    """The files of the package's prefix: as `make install` lays them out, so that the tool finds
    its parts."""
    # The workloads and the replayer need a C++ library, which musl's compiler has not; nobody tried
    # them elsewhere.
    has_programs = variant.name == "x86_64-gnu"
    built = native.build(variant, work, programs=has_programs,
                         name=f"{variant.name}-programs" if has_programs else "")
    prefix = {f"lib/{name}": archive.Entry(native.stripped(built / name, variant), True)
              for name in ("libloam.so", "libloam-record.so", "libpeer-counters.so")}
    prefix["bin/loam"] = archive.Entry(tool.program(variant, work).read_bytes(), True)
    if has_programs:
        prefix["libexec/loam/replay"] = archive.Entry(native.stripped(built / "replayer/replay",
                                                                      variant), True)
        for program in sorted((built / "workloads").iterdir()):
            if program.is_file() and program.stat().st_mode & 0o111:
                prefix[f"lib/loam/workloads/{program.name}"] = archive.Entry(native.stripped(
                    program, variant), True)
    return prefix


def tag_of(files: dict[str, archive.Entry], variant: native.Variant, work: Path) -> str:
    """The least system that has what the files need."""
    least = (2, 17)
    for name, entry in files.items():
        if entry.data[:4] != b"\x7fELF":
            continue
        file = work / "looked-at"
        file.write_bytes(entry.data)
        shown = run([f"{variant.prefix}readelf", "-dVW", file])
        strangers = set(re.findall(r"\(NEEDED\).*\[(.*)\]", shown)) - ALLOWED[variant.libc]
        if strangers:
            raise Failed(f"{name} needs {', '.join(sorted(strangers))}, which a wheel can not "
                         f"count on")
        for major, minor in re.findall(r"Name: GLIBC_(\d+)\.(\d+)(?:\.\d+)?  Flags: none", shown):
            least = max(least, (int(major), int(minor)))
        for release in re.findall(r"Name: GLIBCXX_3\.4\.(\d+)  ", shown):
            if int(release) > NEWEST_CXX:
                raise Failed(f"{name} needs GLIBCXX_3.4.{release}, which gcc {NEWEST_CXX - 18}'s "
                             f"runtime has not")
    if variant.libc == "gnu":
        return f"manylinux_{least[0]}_{least[1]}_{variant.processor}"
    # musl has no versions of symbols: the release of the headers it was built with.
    return f"musllinux_1_2_{variant.processor}"


def wheel(variant: native.Variant, work: Path) -> tuple[str, bytes]:
    """Name and bytes."""
    prefix = entries(variant, work)
    tag = f"py3-none-{tag_of(prefix, variant, work)}"
    all_files = {f"{NAME}/prefix/{name}": entry for name, entry in prefix.items()}
    for source in sorted((ROOT / "packaging/wheel" / NAME).glob("*.py")):
        text = source.read_bytes().replace(b"@VERSION@", version().encode())
        all_files[f"{NAME}/{source.name}"] = archive.Entry(text)
    info = f"{NAME}-{version()}.dist-info"
    readme = (ROOT / "packaging/wheel/README.md").read_text()
    texts = {
        "METADATA": f"Metadata-Version: 2.4\nName: loam-heap\nVersion: {version()}\n"
                    "Summary: A low-fragmentation heap for any program, and instruments that show "
                    "what it brings\n"
                    "License-Expression: MIT\nLicense-File: LICENSE\nRequires-Python: >=3.8\n"
                    "Keywords: malloc,allocator,memory,fragmentation,LD_PRELOAD\n"
                    "Classifier: Operating System :: POSIX :: Linux\n"
                    f"Description-Content-Type: text/markdown\n\n{readme}",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: loam packaging/build\nRoot-Is-Purelib: "
                 f"false\nTag: {tag}\n",
        "entry_points.txt": f"[console_scripts]\nloam = {NAME}.__main__:main\n",
        "licenses/LICENSE": (ROOT / "LICENSE").read_text(),
    }
    all_files |= {f"{info}/{name}": archive.Entry(text.encode()) for name, text in texts.items()}
    record = "".join(f"{name},sha256={digest(entry.data)},{len(entry.data)}\n" for name,
                     entry in sorted(all_files.items()))
    all_files[f"{info}/RECORD"] = archive.Entry(f"{record}{info}/RECORD,,\n".encode())
    return f"{NAME}-{version()}-{tag}.whl", archive.zip_of(all_files)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def make(work: Path, out: Path, variants: list[str]) -> list[Path]:
    made = []
    # The tool was built for the others only.
    for variant in (name for name in variants if name != "aarch64-musl"):
        name, data = wheel(native.VARIANTS[variant], work)
        (out / name).write_bytes(data)
        made.append(out / name)
    return made
