"""The native parts as packages bring them: built for a processor and a C library, stripped, without
a path of this machine in them."""
from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from .source import ROOT, Failed, run

PORTABILITY = ROOT / "tools/portability"
# Builds that are taken as they are, by the variant's name (`packaging/build --built`).
READY: dict[str, Path] = {}
# Debian's musl-dev for aarch64, unpacked by `tools/setup packages`.
MUSL_AARCH64 = ROOT / "build/musl-aarch64"


@dataclass(frozen=True)
class Variant:
    processor: str
    libc: str  # gnu or musl
    compiler: tuple[str, ...]  # the C compiler's words
    prefix: str = ""  # of binutils' names
    options: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.processor}-{self.libc}"

    @property
    def missing(self) -> str:
        """What this machine lacks to build it, and the remedy; nothing if nothing."""
        lacks = [word for word in (self.compiler[0], f"{self.prefix}strip")
                 if shutil.which(word) is None]
        if self.name == "aarch64-musl" and not (MUSL_AARCH64 / "musl-gcc.specs").exists():
            lacks.append(str(MUSL_AARCH64))
        if not lacks:
            return ""
        return f"{' and '.join(lacks)} not found; `tools/setup test packages` installs what has it"


def cross(processor: str) -> tuple[str, ...]:
    return ("-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}",
            f"-DCMAKE_C_COMPILER={processor}-linux-gnu-gcc",
            f"-DCMAKE_CXX_COMPILER={processor}-linux-gnu-g++")


def variants() -> list[Variant]:
    arm = "aarch64-linux-gnu-"
    return [
        Variant("x86_64", "gnu", ("gcc",)),
        Variant("x86_64", "musl", ("musl-gcc",),
                options=("--toolchain", str(PORTABILITY / "musl.cmake"))),
        Variant("aarch64", "gnu", (f"{arm}gcc",), arm, cross("aarch64")),
        Variant("aarch64", "musl", (f"{arm}gcc", f"-specs={MUSL_AARCH64 / 'musl-gcc.specs'}",
                                    "-mno-outline-atomics"), arm,
                ("--toolchain", str(PORTABILITY / "musl-aarch64.cmake"))),
    ]


VARIANTS = {variant.name: variant for variant in variants()}


def build(variant: Variant, work: Path, programs: bool = False, options: tuple[str, ...] = (),
          name: str = "",
          targets: tuple[str, ...] = ("all",)) -> Path:
    """The folder with libloam.so, libloam.a and libloam-record.so; `programs`: workloads and
    replayer as well."""
    if variant.name in READY:
        return READY[variant.name]
    folder = work / "native" / (name or variant.name)
    if variant.missing:
        raise Failed(variant.missing)
    # By the environment: CMake puts a toolchain's flags behind these. CMAKE_C_FLAGS would replace
    # them.
    flags = f"-ffile-prefix-map={ROOT}=. -ffile-prefix-map={folder}=build"
    run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DLOAM_BUILD_TESTS=OFF",
         f"-DLOAM_BUILD_WORKLOADS={'ON' if programs else 'OFF'}", *variant.options, *options],
        folder / "configure.log", CFLAGS=flags, CXXFLAGS=flags)
    run(["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 2), "--target", *targets],
        folder / "build.log")
    return folder


def stripped(file: Path, variant: Variant, static: bool = False) -> bytes:
    """The file's bytes without debug information, and without symbols that nothing links by."""
    out = file.with_name(file.name + ".stripped")
    run([f"{variant.prefix}strip", "--strip-debug" if static else "--strip-unneeded",
         "--enable-deterministic-archives", "-o", out, file])
    data = out.read_bytes()
    out.unlink()
    if variant.libc == "musl" and file.suffix == ".so":
        # EI_OSABI: the GNU C library's loader leaves out a file of an unknown one, says so in a
        # line, and starts the program. Without it the loader would look for musl's libc.so and end
        # the program. musl reads none of it.
        data = data[:7] + b"\xff" + data[8:]
    return data
