#!/usr/bin/env python3
"""Installs Loam's packages by their own clients, in a place without any part of Loam, and uses
them.

    tests/packaging/packages.py [--full] CASE   one case; 77 and a reason where it can not run
    tests/packaging/packages.py --full          all cases one after the other: `make packages-test`

packaging/build makes a package from the results of `make build`. `make test` runs the short form of
each case; --full adds parts that take minutes or fetch from a registry.
"""
from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build" / "packaging" / "tests"
LOAM = ROOT / "build" / "loam"

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "packaging"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from making.native import MUSL_AARCH64, VARIANTS  # noqa: E402
from making.source import files, version  # noqa: E402
from page import INSTALL, block, lines as lines_of  # noqa: E402


def skip(reason: str) -> None:
    print(f"skipped: {reason}")
    sys.exit(77)


def need(*commands: str) -> None:
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        skip(f"{', '.join(missing)} not found; install what has it (tools/setup test)")


def run(*command: str | Path, status: int | None = 0, cwd: Path = ROOT, **environment: str) -> str:
    words = [str(word) for word in command]
    print("+", shlex.join(words), flush=True)
    done = subprocess.run(words, cwd=cwd, env={**os.environ, **environment}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    if status is not None and done.returncode != status:
        print(done.stdout)
        sys.exit(f"exit status {done.returncode}, not {status}")
    return done.stdout


def type_in(lines: str, **options: object) -> str:
    """Types lines of a document, as a reader would, until one fails."""
    return run("sh", "-ec", lines, **options)


def expect(condition: bool, words: str) -> None:
    if not condition:
        sys.exit(words)


def fresh(name: str) -> Path:
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# The short form packs what `make build` built, which has this machine's paths in it. --full builds
# for the packages.
BUILT = ("--built", f"x86_64-gnu={ROOT / 'build'}")
SHORT = ("--tool", str(LOAM), "--variant", "x86_64-gnu", *BUILT)
# Of the test portability.musl, which builds that library.
MUSL = ROOT / "build/cmake/tests/portability/musl"


def build(kind: str, out: Path, *options: str, **environment: str) -> list[Path]:
    listed = run(ROOT / "packaging/build", "--out", out, *options, kind, **environment)
    return [Path(line) for line in listed.splitlines() if line.startswith("/")]


def expect_same_twice(kind: str, folder: Path, *options: str) -> list[Path]:
    """Builds a package twice, in different places. The bytes must be the same."""
    first, second = (build(kind, folder / name, *options) for name in ("first", "second"))
    expect_same(first, second)
    return first


def expect_same(first: list[Path], second: list[Path]) -> None:
    expect(len(first) > 0 and [path.name for path in first] == [path.name for path in second],
           f"{first} and then {second}")
    for one, other in zip(first, second):
        for path in sorted(one.rglob("*")) if one.is_dir() else [one]:
            twin = other / path.relative_to(one)
            expect(path.is_dir() or path.read_bytes() == twin.read_bytes(),
                   f"{path} and {twin} differ")


def emulated(name: str) -> list[str | Path] | None:
    """The words before a program of a variant with which it runs here, none for this machine's own;
    null: it cannot run."""
    if name.startswith("x86_64"):
        is_here = name == "x86_64-gnu" or Path("/lib/ld-musl-x86_64.so.1").exists()
        return [] if is_here else None
    root = Path("/usr/aarch64-linux-gnu")
    if name == "aarch64-musl":
        root = MUSL_AARCH64
    is_here = shutil.which("qemu-aarch64") and any(root.glob("lib/ld-*.so.1"))
    return ["qemu-aarch64", "-L", root] if is_here else None


def served(name: str, folder: Path) -> Path:
    """A program of the variant that prints which heap its blocks belong to."""
    source, target = folder / "served.c", folder / f"served-{name}"
    source.write_text(SERVED)
    run(*VARIANTS[name].compiler, "-O1", "-fno-builtin", source, "-o", target)
    return target


def expect_served(name: str, library: Path, folder: Path) -> None:
    """The library serves a program of its own processor and C library, and prints nothing."""
    before = emulated(name)
    if before is None:
        print(f"not run: {name}: no emulator, or no C library for it")
        return
    program = served(name, folder)
    preload = ["-E", f"LD_PRELOAD={library}"] if before else []
    environment = {} if before else {"LD_PRELOAD": str(library)}
    seen = run(*before, *preload, program, **environment).strip()
    expect(seen == "on Loam", f"{library} under {name}: {seen}")


@contextlib.contextmanager
def started(*command: str | Path, **environment: str) -> Iterator[subprocess.Popen]:
    """A program that writes "waiting" when it can be examined, and ends with its input."""
    print("+", shlex.join(map(str, command)), "&", flush=True)
    process = subprocess.Popen(list(map(str, command)), env={**os.environ, **environment},
                               text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for line in process.stdout:
            if line.strip() == "waiting":
                break
        else:
            sys.exit(f"{command[0]} ended before it was looked at")
        yield process
    finally:
        process.stdin.close()
        process.wait(60)


def expect_stats(loam: Path | str, process: subprocess.Popen) -> None:
    seen = run(loam, "stats", str(process.pid))
    expect(f"on Loam {version()}" in seen, f"`loam stats` does not see the program:\n{seen}")


# --- Rust -----------------------------------------------------------------------------------------

def cargo(folder: Path, *arguments: str, status: int | None = 0) -> str:
    """Disables the network if the registry's files are already here."""
    words = [ROOT / "tools/cargo", *arguments, "--manifest-path", folder / "Cargo.toml",
             "--target-dir", WORK / "crates-target"]
    seen = run(*words, "--offline", status=None)
    if "--offline" in seen or "no matching package" in seen:
        seen = run(*words, status=None)
        if "failed to download" in seen or "Could not resolve" in seen or "network" in seen:
            skip("the registry's crates cc and allocator-api2 are not here, and the registry is "
                 "out of reach")
    print(seen)
    if status == 0:
        expect("error" not in seen.split("Finished")[0] and "Finished" in seen, "cargo failed")
    return seen


def client(folder: Path, source: Path, packed: list[Path]) -> Path:
    """A copy of a package that uses the packed crates instead of the registry's."""
    patches = ["", "[patch.crates-io]"]
    for path in packed:
        with tarfile.open(path) as archive:
            archive.extractall(folder)
        name = path.name.removesuffix(f"-{version()}.crate")
        patches.append(f'{name} = {{ path = "../{path.name.removesuffix(".crate")}" }}')
    target = folder / source.name
    shutil.copytree(source, target)
    with (target / "Cargo.toml").open("a") as manifest:
        manifest.write("\n".join(patches) + "\n")
    return target


ALL_ON_LOAM = ["a Rust vector", "a Rust box of 256 bytes' alignment", "malloc() in C",
               "operator new in C++",
               "a string of libstdc++", "strdup() of the C library"]


RUST_ON_LOAM = """
fn main() {
    let numbers = vec![1u64; 1000];
    println!("{}", if loam_alloc::owns(numbers.as_ptr()) { "on Loam" } else { "on another heap" });
}
"""


def crates(full: bool) -> None:
    """An empty package with C++ code uses the packed crates: every block is Loam's, and the tool
    sees it."""
    folder = fresh("crates")
    packed = expect_same_twice("crates", folder)
    package = client(folder, ROOT / "examples/rust", packed)
    cargo(package, "build")
    program = WORK / "crates-target/debug/one-heap"
    lines = run(program).splitlines()
    for name in ALL_ON_LOAM:
        expect(f"{name}: Loam" in lines, f"{name} is not on Loam:\n{lines}")
    expect("a private heap: 2 blocks" in lines, f"{lines}")
    with started(program, "wait") as process:
        expect_stats(LOAM, process)
        run(LOAM, "check", str(process.pid))
    page = folder / "page"
    (page / "src").mkdir(parents=True)
    (page
     / "Cargo.toml").write_text('[package]\nname = "page"\nversion = "1.0.0"\nedition = "2021"\n\n'
                                     + block(INSTALL, "Rust", "toml", FOLDER=str(folder)))
    (page / "src/main.rs").write_text(block(INSTALL, "Rust", "rust") + RUST_ON_LOAM)
    cargo(page, "build")  # of the crates that client() unpacked, and compiled
    seen = run(WORK / "crates-target/debug/page").strip()
    expect(seen == "on Loam", f"a program by {INSTALL}: {seen}")
    if full:
        # With a Rust allocator alone, C and C++ keep their heap, and the program says so.
        cargo(package, "build", "--no-default-features")
        seen = run(program).splitlines()
        expect("a Rust vector: Loam" in seen and "malloc() in C: another heap" in seen, f"{seen}")
        opened(packed)


def opened(packed: list[Path]) -> None:
    """A Rust library with the feature dlopen-tls is opened by a running program."""
    folder = fresh("crates-dlopen")
    package = client(folder, ROOT / "tests/packaging/opened", packed)
    cargo(package, "build")
    library = WORK / "crates-target/debug/libopened.so"
    expect("STATIC_TLS" not in run("readelf", "-dW", library),
           f"{library} has static thread-local storage")
    seen = run(sys.executable, "-c", "import ctypes, sys\n"
               "opened = ctypes.CDLL(sys.argv[1])\nprint(opened.blocks_on_loam())", library)
    expect(seen.strip() == "100", f"{seen} blocks of 100 are Loam's")


# --- Python ---------------------------------------------------------------------------------------

# The program waits with its memory touched, so that there is something to see.
PYTHON_WAITS = ("import sys\nblocks = [bytes(1000) for _ in range(10000)]\nprint('waiting', "
                "flush=True)\n"
                "sys.stdin.read()\n")
LOADED_FROM = ("print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libloam.so' in "
               "line))")
FOREIGN = """
import zlib, numpy, pandas, pyarrow, pyarrow.compute
table = pandas.DataFrame({"key": numpy.arange(200_000) % 1000,
                          "value": numpy.random.default_rng(1).random(200_000)})
sums = table.groupby("key").value.sum()
arrow = pyarrow.Table.from_pandas(table)
again = pyarrow.compute.sum(arrow["value"]).as_py()
temporaries = [numpy.ones((512, 512)) @ numpy.ones((512, 512)) for _ in range(50)]
print(zlib.crc32(sums.to_numpy().tobytes()), again.hex(), temporaries[-1].sum(),
      pyarrow.default_memory_pool().backend_name)
"""


def wheel(full: bool) -> None:
    """pip installs the wheel in an empty environment whose path has a blank; programs run on the
    heap."""
    folder = fresh("wheel")
    packed = expect_same_twice("wheel", folder, *(() if full else SHORT))
    wheels = {(found[1], found[2]): path for path in packed
              if (found := re.search(r"(manylinux|musllinux)_\d+_\d+_(\w+)\.whl", path.name))}
    own = wheels["manylinux", "x86_64"]
    environment = folder / "an environment"
    run(sys.executable, "-m", "venv", environment)
    binaries = environment / "bin"
    pip = [binaries / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", own)
    loam, python = binaries / "loam", binaries / "python"
    expect(run(loam, "--version").strip() == f"loam {version()}", "loam --version")
    expected = next(environment.rglob("libloam.so"))
    plain = folder / "plain"
    plain.symlink_to(environment)
    typed_wheel(folder, (binaries, plain / "bin"), own)
    for words in ([loam], [python, "-m", "loam_heap"]):
        # The last word of a line of maps whose path has blanks.
        seen = run(*words, "run", "--", python, "-c", LOADED_FROM).strip()
        expect(str(expected).endswith(seen), f"{seen} is preloaded, not {expected}")
    # A library that is already preloaded stays, behind the heap.
    seen = run(loam, "run", "--", "sh", "-c", 'echo "$LD_PRELOAD"', LD_PRELOAD="libm.so.6").strip()
    expect(re.fullmatch(r"/\S+/libloam\.so:libm\.so\.6", seen) is not None,
           f"LD_PRELOAD became {seen}")
    seen = run(plain / "bin/python", "-c", "import loam_heap; print(loam_heap.library())").strip()
    expect(Path(seen).samefile(expected) and " " not in seen.removeprefix(str(folder)),
           f"loam_heap.library() is {seen}")
    run(loam, "check", python)
    with started(loam, "run", "--", python, "-c", PYTHON_WAITS) as process:
        expect_stats(loam, process)
    trace = folder / "trace"
    run(loam, "record", "--output", trace, "--", python, "-c", "[bytes(1000) for _ in range(1000)]")
    if full:
        run(loam, "replay", trace, "--trials", "1", "--allocators", "system,loam", cwd=folder)
        foreign(pip, loam, python, folder)
        for (libc, processor), packed in wheels.items():
            opened_wheel(f"{processor}-{'gnu' if libc == 'manylinux' else 'musl'}", packed, pip,
                         folder)
    run(*pip, "uninstall", "--yes", "loam-heap")
    left = [path for path in environment.rglob("*loam*") if path.is_file()]
    expect(not left, f"pip uninstall left {left}")


def opened_wheel(name: str, packed: Path, pip: list, folder: Path) -> None:
    """pip installs a wheel for the system of its tag, and its content works under an emulator."""
    place = folder / name
    system = packed.stem.split("-")[-1]
    run(*pip, "install", "--no-index", "--only-binary", ":all:", "--platform", system, "--target",
        place, packed)
    prefix = place / "loam_heap/prefix"
    before = emulated(name)
    if before is not None:
        said = run(*before, prefix / "bin/loam", "--version").strip()
        expect(said == f"loam {version()}", f"loam of the wheel for {name}: {said}")
    expect_served(name, prefix / "lib/libloam.so", folder)


def typed_wheel(folder: Path, binaries: tuple[Path, Path], packed: Path) -> None:
    """The page's commands, typed in the folder of the wheel and an app.py."""
    place = folder / "typed"
    place.mkdir()
    shutil.copy(packed, place)
    (place / "app.py").write_text(LOADED_FROM)
    for number, folder_of_programs in enumerate(binaries):
        path = {"PATH": f"{folder_of_programs}:{os.environ['PATH']}", "PIP_NO_INDEX": "1",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        seen = type_in(block(INSTALL, "Python", number=number), cwd=place, **path).splitlines()[-1]
        expect(seen.endswith("libloam.so"), f"{INSTALL}, Python, block {number}: {seen}")


def foreign(pip: list, loam: Path, python: Path, folder: Path) -> None:
    """numpy, pandas and pyarrow compute the same on the heap as without it."""
    fetched = run(*pip, "install", "numpy", "pandas", "pyarrow", status=None)
    if run(python, "-c", "import numpy, pandas, pyarrow", status=None):
        print(f"numpy, pandas and pyarrow: skipped, pip could not fetch them\n{fetched[-500:]}")
        return
    script = folder / "foreign.py"
    script.write_text(FOREIGN)
    pools = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    without, on_loam = run(python, script, **pools), run(loam, "run", "--", python, script, **pools)
    expect(without == on_loam, f"on the C library's heap: {without}on Loam: {on_loam}")


# --- Debian ---------------------------------------------------------------------------------------

def debian(full: bool) -> None:
    """lintian finds nothing. In a clean Debian the packages install, serve, and leave nothing when
    they are removed."""
    need("dpkg-buildpackage", "dh", "lintian")
    folder = fresh("debian")
    # Without optimisation, the compiler takes a quarter of the time.
    packages = (expect_same_twice("debian", folder) if full
                else build("debian", folder, *SHORT, DEB_BUILD_OPTIONS="noopt"))
    names = [path.name.split("_")[0] for path in packages]
    expect(names == ["libloam-dev", "libloam1", "loam-tools"], f"packages: {names}")
    run("lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0",
        *packages)
    root = folder / "unpacked"
    for package in packages:
        run("dpkg-deb", "--extract", package, root)
    seen = run(root / "usr/bin/loam", "run", "--", "grep", "-m1", "-o", "/[^ ]*libloam[.]so.*",
               "/proc/self/maps")
    expect(str(root) in seen and seen.strip().endswith("libloam.so.1"),
           f"loam-tools preloads {seen}")
    if full:
        clean_debian(folder, packages)


def clean_debian(folder: Path, packages: list[Path]) -> None:
    need("mmdebstrap", "chroot")
    if os.geteuid() != 0:
        skip("a clean Debian is entered by chroot, as root")
    root = folder / "root"
    made = run("mmdebstrap", "--variant=minbase", "--include=gcc,libc6-dev,pkgconf,python3-minimal",
               "bookworm", root,
               status=None)
    if not (root / "usr/bin/dpkg").exists():
        skip(f"mmdebstrap could not make a Debian:\n{made[-600:]}")

    def inside(*command: str, status: int | None = 0) -> str:
        return run("chroot", root, *command, status=status, LC_ALL="C",
                   PATH="/usr/sbin:/usr/bin:/sbin:/bin")

    def content() -> set[str]:
        kept = ("var/lib/dpkg", "var/lib/apt", "var/log", "var/cache", "etc/ld.so.cache", "proc",
                "tmp")
        found = (str(path.relative_to(root)) for path in root.rglob("*"))
        return {name for name in found if not name.startswith(kept) and "__pycache__" not in name}

    before = content()
    for package in packages:
        shutil.copy(package, root / "tmp")
    run("mount", "-t", "proc", "proc", root / "proc")
    try:
        seen = inside("sh", "-ec", "cd /tmp\n"
                      + block(INSTALL, "Debian", PROGRAM="grep -c libloam /proc/self/maps"))
        expect(int(seen.splitlines()[-1]) > 0,
               f"{INSTALL}, Debian: the program is not on Loam:\n{seen}")
        inside("sh", "-c", "dpkg --install /tmp/libloam-dev_*.deb")
        inside("loam", "check", "/usr/bin/python3")
        seen = inside("sh", "-c", "loam run -- sleep 20 & sleep 1; loam stats $!; kill $!")
        expect(f"on Loam {version()}" in seen, seen)
        (root / "tmp/plain.c").write_text((ROOT / "tests/packaging/consumer/plain.c").read_text())
        seen = inside("sh", "-c", "cd /tmp && gcc plain.c -o plain $(pkg-config --cflags --libs "
                                  "loam) && ./plain && "
                      "gcc plain.c -o plain -l:libloam.a && ./plain")
        expect(seen.split("\n")[:2] == ["served by loam"] * 2, seen)
        inside("dpkg", "--purge", "loam-tools", "libloam-dev", "libloam1")
    finally:
        run("umount", root / "proc")
    left = content() - before
    expect(not left, f"removing the packages left {sorted(left)[:10]}")
    shutil.rmtree(root)


# --- Container ------------------------------------------------------------------------------------

SERVED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  char line[512];
  int served = 0, status = 0;
  void* blocks[1000];
  for (int i = 0; i < 1000; ++i) memset(blocks[i] = malloc(i + 1), 1, i + 1);
  for (int i = 0; i < 1000; ++i) free(blocks[i]);
  if (fork() == 0) _exit(malloc(10) == 0);
  wait(&status);
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) served |= strstr(line, "libloam.so") != 0;
  puts(status != 0 ? "fork failed" : served ? "on Loam" : "on another heap");
  return 0;
}
"""


def unpack(layout: Path, folder: Path) -> dict[str, Path]:
    """Every blob matches its descriptor. Returns the unpacked images by tag and processor."""

    def blob(descriptor: dict) -> bytes:
        data = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        expect(len(data) == descriptor["size"]
               and f"sha256:{hashlib.sha256(data).hexdigest()}" == descriptor["digest"],
               f"{descriptor} is not what it says")
        return data

    images = {}
    for tagged in json.loads((layout / "index.json").read_text())["manifests"]:
        for entry in json.loads(blob(tagged))["manifests"]:
            manifest = json.loads(blob(entry))
            config = json.loads(blob(manifest["config"]))
            layer = gzip.decompress(blob(manifest["layers"][0]))
            expect(config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
                   "diff_ids")
            expect(config["architecture"] == entry["platform"]["architecture"],
                   "architectures differ")
            tag = tagged['annotations']['org.opencontainers.image.ref.name']
            name = f"{tag}/{config['architecture']}"
            with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
                archive.extractall(folder / name)
            images[name] = folder / name / "usr/lib/libloam.so"
    return images


def expect_dockerfile(image: Path, program: Path) -> None:
    """The page's two lines of a Dockerfile, done by hand in an empty folder instead of the
    image."""
    copy, preload = block(INSTALL, "Container images", VERSION=version()).splitlines()
    found = re.fullmatch(rf"COPY --from=REGISTRY/loam:{re.escape(version())} (/\S+) (/\S+)", copy)
    expect(found is not None, f"{INSTALL}: the line that copies is {copy}")
    service = image.parent / "service"
    target = service / found[2].lstrip("/")
    target.parent.mkdir(parents=True)
    shutil.copy(image / found[1].lstrip("/"), target)
    expect(preload == f"ENV LD_PRELOAD={found[2]}",
           f"{INSTALL}: {preload} preloads another file than {found[2]}")
    seen = run(program, LD_PRELOAD=str(target)).strip()
    expect(seen == "on Loam", f"a service by the page's Dockerfile: {seen}")


def container(full: bool) -> None:
    """The library of the unpacked image serves. The library for another C library does no harm."""
    folder = fresh("container")
    lacking = {name: variant.missing for name, variant in VARIANTS.items() if variant.missing}
    variants = [name for name in VARIANTS if name not in lacking]
    if not full:  # portability.aarch64 runs that library
        variants = [name for name in variants if name.startswith("x86_64")]
    options = [word for name in variants for word in ("--variant", name)]
    if not full:
        options += BUILT
        if (MUSL / "libloam.so").exists():
            run("cmake", "--build", MUSL)  # which does nothing after portability.musl
            options += ["--built", f"x86_64-musl={MUSL}"]
    images = unpack(expect_same_twice("container", folder, *options)[0], folder / "images")

    def preloaded(path: Path, library: Path) -> tuple[str, list[str]]:
        done = subprocess.run([path], env={**os.environ, "LD_PRELOAD": str(library)},
                              capture_output=True, text=True)
        expect(done.returncode == 0, f"{path} with {library}: {done}")
        return done.stdout.strip(), done.stderr.splitlines()

    gnu = images[f"{version()}/amd64"]
    ordinary = served("x86_64-gnu", folder)
    expect_dockerfile(folder / "images" / f"{version()}/amd64", ordinary)
    expect(preloaded(ordinary, gnu) == ("on Loam", []), "the image's library does not serve")
    expect(preloaded(ordinary, folder / "not there/libloam.so")[0] == "on another heap",
           "a library that is not there")
    if "x86_64-musl" in variants and emulated("x86_64-musl") is not None:
        musl = images[f"{version()}-musl/amd64"]
        other = served("x86_64-musl", folder)
        expect(preloaded(other, musl) == ("on Loam", []), "the image for musl does not serve there")
        seen, said = preloaded(ordinary, musl)
        expect(seen == "on another heap" and len(said) == 1 and "ignored" in said[0],
               f"musl's on glibc: {seen}, {said}")
        # Every function that it needs exists there too, and it needs no version of one.
        expect(preloaded(other, gnu) == ("on Loam", []), "glibc's library does not serve on musl")
    if "aarch64-gnu" in variants:
        seen, said = preloaded(ordinary, images[f"{version()}/arm64"])
        expect(seen == "on another heap" and "ignored" in said[0],
               f"another processor's library: {seen}, {said}")
        expect_served("aarch64-gnu", images[f"{version()}/arm64"], folder)
    if "aarch64-musl" in variants:
        expect_served("aarch64-musl", images[f"{version()}-musl/arm64"], folder)
        expect_served("aarch64-musl", images[f"{version()}/arm64"], folder)
    for name, reason in lacking.items():
        print(f"not looked at: {name}: {reason}")


# --- Conan, release -------------------------------------------------------------------------------

# The page has this command in a sentence.
CONAN = "conan create packaging/conan"


def conan(full: bool) -> None:
    """`conan create` builds the recipe and runs its test package, shared and static."""
    folder = fresh("conan")
    expect(f"`{CONAN}`" in (ROOT / INSTALL).read_text(), f"{INSTALL} says no more `{CONAN}`")
    expect_same_twice("conan", folder)
    if not full:
        return
    environment = WORK / "conan-environment"
    command = environment / "bin/conan"
    if not command.exists():
        run(sys.executable, "-m", "venv", environment)
        fetched = run(environment / "bin/python", "-m", "pip", "install", "--quiet", "conan>=2,<3",
                      status=None)
        if not command.exists():
            skip(f"pip could not fetch Conan: {fetched[-300:]}")
    home = {"CONAN_HOME": str(folder / "home")}
    run(command, "profile", "detect", **home)
    scratch = f"tools.cmake.cmake_layout:test_folder={folder}/test"
    for shared in ("True", "False"):
        seen = type_in(f"{CONAN} --options 'loam/*:shared={shared}' --conf '{scratch}'",
                       PATH=f"{environment}/bin:{os.environ['PATH']}", **home)
        expect("served by loam" in seen, f"shared={shared}: {seen[-2000:]}")


def vcpkg(full: bool) -> None:
    """The port's steps, done by CMake alone, install a package that a project finds. vcpkg itself
    does not run here."""
    if not full:
        skip("`make packages-test` builds the port")
    need("cmake", "ninja")
    folder = fresh("vcpkg")
    prefix = folder / "packages"
    run("cmake", f"-DPORT={ROOT}/packaging/vcpkg", f"-DCURRENT_PACKAGES_DIR={prefix}",
        f"-DBUILD={folder}/build", "-P",
        ROOT / "tests/packaging/vcpkg.cmake")
    expect(not (prefix / "debug").exists() and (prefix / "share/copyright").exists(),
           "what a port must leave")
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests/packaging/consumer", "-B", folder / "consumer",
        "-DLOAM_HOW=find_package", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "consumer", "--parallel", "2")
    for name in ("shared", "static"):
        expect(run(folder / "consumer" / name).strip() == "served by loam",
               f"the consumer's {name} is not on Loam")


def release(full: bool) -> None:
    """The bill of materials names every crate of the lock file, and SHA256SUMS every file; the same
    bytes twice."""
    folder = fresh("release")
    for name in ("first", "second"):
        build("crates", folder / name)
    expect_same_twice("release", folder)
    first = folder / "first"
    bill = json.loads(next(first.glob("*.cdx.json")).read_text())
    named = {(part["name"], part.get("version")) for part in bill["components"]}
    locked = re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource',
                        (ROOT / "tool/Cargo.lock").read_text())
    expect(bill["bomFormat"] == "CycloneDX" and set(locked) <= named and len(locked) > 50,
           "the bill is not whole")
    checked = run("sha256sum", "--check", "SHA256SUMS", cwd=first)
    expect(len(checked.splitlines()) == len(list(first.iterdir())) - 1, f"SHA256SUMS: {checked}")
    if full:
        elsewhere(folder)


def elsewhere(folder: Path) -> None:
    """A clone in another folder, where nothing was built, makes the same bytes: libraries,
    programs, packages, sums."""
    need("git")
    clone = folder / "elsewhere/clone"
    run("git", "clone", "--quiet", ROOT, clone)
    # Uncommitted changes are copied too.
    for name in files("."):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    shutil.copytree(ROOT / "build/share", clone / "build/share")
    made = []
    for root in (ROOT, clone):
        out = root / "build/packaging/everything"
        shutil.rmtree(out, ignore_errors=True)
        run(root / "packaging/build", "--out", out, "--variant", "x86_64-gnu", cwd=root)
        run(root / "packaging/build", "--out", out, "--variant", "x86_64-gnu", "release", cwd=root)
        made.append(sorted(out.iterdir()))
    expect_same(*made)
    expect(len(made[0]) >= 12, f"made: {made[0]}")


def readme(full: bool) -> None:
    """The lines of the front page that run a program on the heap, with the results of `make
    build`."""
    lines = block("README.md", "Try it").splitlines()
    typed = [line for line in lines if line.startswith("build/loam run ")]
    expect(len(typed) > 0, "README.md has no line `build/loam run` under 'Try it'")
    for line in typed:
        expect("on Loam" in type_in(line), f"README.md: {line}")
    # Other cases type the lines that install, from the page that has them all.
    if re.search(r"^## Install$", (ROOT / "README.md").read_text(), re.M):
        page = re.sub(r"^```.*$", "", (ROOT / INSTALL).read_text(), flags=re.M)
        strange = lines_of(block("README.md", "Install")) - lines_of(page)
        expect(not strange, f"README.md says {sorted(strange)}, and {INSTALL} does not")
    targets = re.findall(r"^make ([a-z-]+)", "\n".join(lines), re.M)
    expect("build" in targets and "lab" in targets, f"README.md: make {targets}")


CASES = {case.__name__: case
         for case in (readme, crates, wheel, debian, container, conan, vcpkg, release)}


def all_cases() -> int:
    """Each case has a process of its own, so that a failure of one does not end the others."""
    outcomes = {name: subprocess.run([sys.executable, __file__, "--full", name]).returncode
                for name in CASES}
    words = {0: "passed", 77: "skipped"}
    for name, status in outcomes.items():
        print(f"{name:20} {words.get(status, 'FAILED')}")
    return 1 if set(outcomes.values()) - set(words) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("case", nargs="?", choices=sorted(CASES))
    arguments = parser.parse_args()
    if arguments.case is None:
        return all_cases() if arguments.full else parser.error("which case?")
    CASES[arguments.case](arguments.full)
    return 0


if __name__ == "__main__":
    sys.exit(main())
