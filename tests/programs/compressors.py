"""xz and zstd compress and decompress with two threads; both directions give the same bytes."""
from __future__ import annotations

import random
from pathlib import Path

import harness
from harness import Failure, Side, expect_same_file, run

LONG_MEGABYTES, MEGABYTES = 24, 8


def megabytes() -> int:
    return LONG_MEGABYTES if harness.is_long else MEGABYTES


def write_input(path: Path) -> None:
    """Data like text: words by a skewed distribution, with stretches of noise and of zeros."""
    generator = random.Random(11)
    words = [bytes(generator.choices(b"abcdefghijklmnopqrstuvwxyz", k=generator.randint(2, 11)))
             for _ in range(20000)]
    with open(path, "wb") as file:
        for _ in range(megabytes()):
            text = b" ".join(words[int(20000 * generator.random() ** 4)] for _ in range(140_000))
            chunk = text[:900_000] + generator.randbytes(60_000) + bytes(40_000)
            file.write(chunk[:1_000_000])


def round_trip(system: Side, loam: Side, folder: Path, command: list[str], suffix: str) -> str:
    original = folder / "input"
    write_input(original)
    packed = {}
    for side in (system, loam):
        packed[side.name] = folder / f"{side.name.replace(' ', '-')}{suffix}"
        run(side, [*command, "-c", original], folder=folder, timeout=900,
            stdout=packed[side.name])
    if not 1000 < packed[loam.name].stat().st_size < original.stat().st_size // 2:
        raise Failure(f"{command[0]} packed {original.stat().st_size} bytes into "
                      f"{packed[loam.name].stat().st_size}")
    expect_same_file("the compressed file", packed[system.name], packed[loam.name])
    unpacked = folder / "unpacked"
    run(loam, [command[0], "-d", "-T2", "-c", packed[loam.name]], folder=folder, timeout=900,
        stdout=unpacked)
    expect_same_file("the decompressed file", original, unpacked)
    ratio = original.stat().st_size / packed[loam.name].stat().st_size
    return f"{megabytes()} MB packed {ratio:.1f}:1 with two threads and back, byte for byte"


def xz(system: Side, loam: Side, folder: Path) -> str:
    # Blocks of 4 MiB, so that the two threads really share the work.
    return round_trip(system, loam, folder, ["xz", "-T2", "-1", "--block-size=4MiB"], ".xz")


def zstd(system: Side, loam: Side, folder: Path) -> str:
    return round_trip(system, loam, folder, ["zstd", "-T2", "-9", "-q", "-B1M"], ".zst")
