"""The tool as one file for each processor: static, with the heap, the recorder and the replayer in
a zip archive behind it.

    loam-0.1.0-linux-x86_64 = [loam for musl][gnu/libloam.so, gnu/replay ..., musl/libloam.so ...]

The parts for glibc are bound to the versions of symbols that glibc 2.17 had. Since 2.34 the
functions of libpthread and libdl are in libc.so.6, so a linker would ask for that version. Here it
meets stubs of the two libraries first, which newer systems still have as empty files that define
the old versions. The replayer is a program, whose start needs glibc 2.34.
"""
from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path

from . import archive, native, tool
from .source import Failed, run, version

# The first version of each symbol, by processor (aarch64 began with 2.17), and the library that had
# it.
OLDEST = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
MOVED = {"libpthread.so.0": ("pthread_attr_setstacksize", "pthread_create", "pthread_getspecific",
                             "pthread_join",
                             "pthread_key_create", "pthread_key_delete", "pthread_setspecific",
                             "pthread_sigmask"),
         "libdl.so.2": ("dladdr", "dlerror", "dlopen", "dlsym")}
NAMED = {"x86_64": "GLIBC_2.12", "aarch64": "GLIBC_2.17"}  # of pthread_setname_np
NEWEST = (2, 17)  # what a library here may need
LIBRARIES = {"libloam.so": "loam", "libloam-record.so": "loam_record",
             "libpeer-counters.so": "loam_peer"}
MOST = 15_000_000


def stubs(variant: native.Variant, work: Path) -> list[Path]:
    """libpthread.so.0 and libdl.so.2 as glibc 2.17 had them, without code."""
    folder = work / "stubs" / variant.name
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, symbols in MOVED.items():
        versions = {OLDEST[variant.processor]: list(symbols)}
        if name == "libpthread.so.0":
            versions.setdefault(NAMED[variant.processor], []).append("pthread_setname_np")
        source, script = folder / f"{name}.c", folder / f"{name}.map"
        source.write_text("".join(f"void {one}(void) {{}}\n" for all_ in versions.values()
                                  for one in all_))
        script.write_text("".join(f"{label} {{ global: {'; '.join(all_)}; }};\n" for label,
                                  all_ in versions.items()))
        run([*variant.compiler, "-shared", "-nostdlib", "-fno-builtin", "-w", f"-Wl,-soname,{name}",
             f"-Wl,--version-script,{script}", "-o", folder / name, source])
        made.append(folder / name)
    return made


def weakened(data: bytes, library: Path, variant: native.Variant) -> bytes:
    """The library's bytes, whose `__libc_single_threaded` (2.32) may be missing: the library asks
    for it weakly. The linker marks no version as weak, and without the mark an older loader refuses
    the whole file."""
    symbols = run([f"{variant.prefix}readelf", "--dyn-syms", "-W", library])
    newer = [line for line in symbols.splitlines() if "@GLIBC_2.32" in line]
    if not newer:
        return data
    if not all(" WEAK " in line and "__libc_single_threaded@" in line for line in newer):
        raise Failed(f"{library}: more than one symbol is of glibc 2.32, or not weak:\n"
                     + "\n".join(newer))
    # Of a struct Elf64_Vernaux: hash (of the version's name), flags, ...
    mark = data.index((0x69691b2).to_bytes(4, "little") + bytes(2)) + 4
    return data[:mark] + (2).to_bytes(2, "little") + data[mark + 2:]


def needs(data: bytes, variant: native.Variant, work: Path) -> tuple[int, int]:
    """The oldest glibc that has what a library can not do without."""
    file = work / "looked-at"
    file.write_bytes(data)
    shown = run([f"{variant.prefix}readelf", "-VW", file])
    found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)(?:\.\d+)?  Flags: none", shown)
    return max((int(major), int(minor)) for major, minor in found)


def parts(variant: native.Variant, work: Path) -> dict[str, archive.Entry]:
    """The files of one C library."""
    options: tuple[str, ...] = ()
    is_gnu = variant.libc == "gnu"
    if is_gnu:
        first = " ".join(str(stub) for stub in stubs(variant, work))
        options = (f"-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--no-as-needed {first}",
                   "-DCMAKE_EXE_LINKER_FLAGS=-static-libstdc++ -static-libgcc")
    targets = (*LIBRARIES.values(), *(["replayer"] if is_gnu else []))
    built = native.build(variant, work, programs=is_gnu, options=options,
                         name=f"{variant.name}-parts", targets=targets)
    found = {}
    for name in LIBRARIES:
        data = native.stripped(built / name, variant)
        if is_gnu:
            data = weakened(data, built / name, variant)
            least = needs(data, variant, work)
            if least > NEWEST:
                raise Failed(f"{name} for {variant.name} needs glibc {least}; "
                             f"packaging/making/static.py lacks a symbol "
                             "that moved")
        found[f"{variant.libc}/{name}"] = archive.Entry(data, True)
    if is_gnu:
        found["gnu/replay"] = archive.Entry(native.stripped(built / "replayer/replay", variant),
                                            True)
    return found


def make(work: Path, out: Path, variants: list[str]) -> list[Path]:
    made = []
    for processor in OLDEST:
        names = [f"{processor}-{libc}" for libc in ("gnu", "musl")]
        if not all(name in variants for name in names):
            continue
        inside: dict[str, archive.Entry] = {}
        for name in names:
            inside |= parts(native.VARIANTS[name], work)
        program = tool.program(native.VARIANTS[f"{processor}-musl"], work)
        path = out / f"loam-{version()}-linux-{processor}"
        path.write_bytes(archive.zip_of(inside, program.read_bytes()))
        path.chmod(0o755)
        if path.stat().st_size > MOST:
            raise Failed(f"{path} has {path.stat().st_size:,} bytes, and may have {MOST:,}")
        emulator = [] if processor == platform.machine() else [f"qemu-{processor}"]
        if not emulator or shutil.which(emulator[0]):
            run([*emulator, path, "--version"])
        made.append(path)
    return made
