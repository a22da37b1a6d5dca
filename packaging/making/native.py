"""The native parts as packages bring them: built for a processor and a C library, stripped, without a path of this
machine in them."""
from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from .source import ROOT, Failed, run

MUSL = ROOT / "tools/portability/musl.cmake"


@dataclass(frozen=True)
class Variant:
    processor: str
    libc: str  # gnu or musl
    prefix: str = ""  # of the compiler's and binutils' names
    options: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.processor}-{self.libc}"


def cross(processor: str) -> tuple[str, ...]:
    return ("-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}",
            f"-DCMAKE_C_COMPILER={processor}-linux-gnu-gcc", f"-DCMAKE_CXX_COMPILER={processor}-linux-gnu-g++")


VARIANTS = {variant.name: variant for variant in (
    Variant("x86_64", "gnu"),
    Variant("x86_64", "musl", options=("--toolchain", str(MUSL))),
    Variant("aarch64", "gnu", "aarch64-linux-gnu-", cross("aarch64")),
)}


def build(variant: Variant, work: Path, programs: bool = False, options: tuple[str, ...] = (), name: str = "") -> Path:
    """The folder with libloam.so, libloam.a and libloam-record.so; `programs`: workloads and replayer as well."""
    folder = work / "native" / (name or variant.name)
    compiler = variant.prefix + ("musl-gcc" if variant.libc == "musl" and not variant.prefix else "gcc")
    if shutil.which(compiler) is None:
        raise Failed(f"{compiler} is not here; `tools/setup test` installs it")
    flags = f"-ffile-prefix-map={ROOT}=. -ffile-prefix-map={folder}=build"
    run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DLOAM_BUILD_TESTS=OFF",
         f"-DLOAM_BUILD_WORKLOADS={'ON' if programs else 'OFF'}", f"-DCMAKE_C_FLAGS={flags}",
         *variant.options, *options],
        folder / "configure.log", CXXFLAGS=flags)
    run(["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 2)], folder / "build.log")
    return folder


def stripped(file: Path, variant: Variant, static: bool = False) -> bytes:
    """The file's bytes without debug information, and without symbols that nothing links by."""
    out = file.with_name(file.name + ".stripped")
    run([f"{variant.prefix}strip", "--strip-debug" if static else "--strip-unneeded", "--enable-deterministic-archives", "-o", out, file])
    data = out.read_bytes()
    out.unlink()
    if variant.libc == "musl" and file.suffix == ".so":
        # EI_OSABI: the GNU C library's loader leaves out a file of an unknown one, says so in a line, and starts the
        # program. Without it the loader would look for musl's libc.so and end the program. musl reads none of it.
        data = data[:7] + b"\xff" + data[8:]
    return data
