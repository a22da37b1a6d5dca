"""The program `loam` as packages bring it: built by cargo for a processor and a C library, without
a path of this machine in it. For musl it is static, and as small as the profile `static` makes
it."""
from __future__ import annotations

import os
import re
from pathlib import Path

from . import native
from .source import ROOT, run

# Programs that are taken as they are, by the variant's name (`packaging/build --tool`).
READY: dict[str, Path] = {}


def has_short_relocations() -> bool:
    """Whether a static program may have its relocations in the short form, which saves 0.65 MB:
    musl 1.2.5 reads it, which Rust has since 1.93."""
    rustc = Path(run([ROOT / "tools/cargo", "--where"]).strip()).with_name("rustc")
    found = re.match(r"rustc (\d+)\.(\d+)", run([rustc, "--version"]))
    return found is not None and (int(found[1]), int(found[2])) >= (1, 93)


def program(variant: native.Variant, work: Path) -> Path:
    if variant.name in READY:
        return READY[variant.name]
    target = f"{variant.processor}-unknown-linux-{variant.libc}"
    folder = work / "tool"
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    flags = [f"--remap-path-prefix={home}=cargo", f"--remap-path-prefix={ROOT}=."]
    upper = target.upper().replace("-", "_")
    environment = {f"CC_{target.replace('-', '_')}": " ".join(variant.compiler),
                   f"CFLAGS_{target.replace('-', '_')}": f"-ffile-prefix-map={home}=cargo"}
    last: list[str] = []  # for the program alone, not for the crates
    if variant.name == "aarch64-musl":
        # Rust brings musl itself, with its start files and its linker.
        environment[f"CARGO_TARGET_{upper}_LINKER"] = "rust-lld"
        flags += ["-Clinker-flavor=ld.lld", "-Clink-self-contained=yes"]
        last = ["-Clink-arg=--pack-dyn-relocs=relr"] if has_short_relocations() else []
    elif variant.libc == "musl":
        last = ["-Clink-arg=-Wl,-z,pack-relative-relocs"] if has_short_relocations() else []
    elif variant.prefix:
        environment[f"CARGO_TARGET_{upper}_LINKER"] = variant.compiler[0]
    profile = "static" if variant.libc == "musl" else "release"
    run([ROOT / "tools/cargo", "rustc", "--manifest-path", ROOT / "tool/Cargo.toml", "--profile",
         profile, "--locked",
         "--package", "loam-cli", "--bin", "loam", "--target", target, "--target-dir", folder, "--",
         *last], work / f"tool-{variant.name}.log",
        CARGO_ENCODED_RUSTFLAGS="\x1f".join(flags), **environment)
    return folder / target / profile / "loam"
