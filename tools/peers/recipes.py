"""How each peer becomes one shared object: its own defaults, release mode, no tuning either way."""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import fetch


class BuildError(Exception):
    """A peer did not build; the text is the reason that is reported."""


@dataclass
class Context:
    """The surroundings of a recipe: the work folder, the log, and a function that reports
    progress."""

    sources: Path
    work: Path
    log: Path
    output: Path
    jobs: int
    progress: callable

    def run(self, command, cwd=None):
        """Runs one build command, its output appended to the log."""
        command = [str(part) for part in command]
        try:
            with open(self.log, "a") as out:
                out.write(f"$ {' '.join(command)}\n")
                out.flush()
                status = subprocess.run(
                    command, cwd=cwd or self.work, stdout=out, stderr=subprocess.STDOUT
                ).returncode
        except FileNotFoundError:
            raise BuildError(f"'{command[0]}' is not installed") from None
        if status:
            text = self.log.read_text(errors="replace")
            errors = re.findall(r"^.*(?:error:|CMake Error|undefined reference).*$", text, re.M)
            reason = errors[0].strip() if errors else f"status {status}"
            raise BuildError(f"{Path(command[0]).name} failed: {reason}")

    def crate(self, name):
        return fetch.crate_folder(self.sources / "crates", name)


@dataclass
class Peer:
    """One allocator: its source, its needs at run time, and its recipe."""

    name: str
    kind: str  # "crate" or "wheel"
    package: str
    recipe: callable
    describe: callable  # folder of sources -> version of the allocator itself
    environment: dict = field(default_factory=dict)

    def pinned(self):
        """(version, checksum) of the package."""
        return (fetch.locked_crates() if self.kind == "crate" else fetch.locked_wheels())[
            self.package
        ]


def compiler(language):
    """CC or CXX if the user set one, otherwise the system's."""
    return (
        os.environ.get("CC", "cc").split()
        if language == "c"
        else os.environ.get("CXX", "c++").split()
    )


def _mimalloc(major):
    def build(context):
        root = context.crate("libmimalloc-sys") / "c_src" / "mimalloc" / f"v{major}"
        flags = (
            "-O3 -DNDEBUG -DMI_BUILD_RELEASE -DMI_MALLOC_OVERRIDE -DMI_SHARED_LIB "
            "-DMI_SHARED_LIB_EXPORT -fPIC -fvisibility=hidden -ftls-model=initial-exec "
            "-fno-builtin-malloc -shared"
        ).split()
        includes = [f"-I{root}/include", f"-I{root}/src"]
        source = root / "src" / "static.c"
        context.run([*compiler("c"), *flags, *includes, source, "-o", context.output, "-lpthread"])

    def version(crate):
        header = crate / "c_src" / "mimalloc" / f"v{major}" / "include" / "mimalloc.h"
        number = int(re.search(r"define MI_MALLOC_VERSION\s+(\d+)", header.read_text()).group(1))
        return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"

    return build, version


def _mimalloc_wheel(context):
    folder = fetch.wheel(context.sources, "cmeel-mimalloc", context.log)
    shutil.copyfile((folder / "cmeel.prefix" / "lib" / "libmimalloc.so").resolve(), context.output)


def _jemalloc(context):
    crate = context.crate("tikv-jemalloc-sys")
    tree = context.work / "jemalloc"
    shutil.copytree(crate / "jemalloc", tree)
    shutil.copyfile(crate / "configure" / "configure", tree / "configure")
    version = fetch.locked_crates()["tikv-jemalloc-sys"][0].split("+")[1]
    context.progress("configuring")
    context.run(["sh", "configure", "--disable-doc", f"--with-version={version}"], tree)
    context.progress("compiling")
    context.run(["make", f"-j{context.jobs}", "build_lib_shared"], tree)
    shutil.copyfile((tree / "lib" / "libjemalloc.so").resolve(), context.output)


def _snmalloc(context):
    tree = context.crate("snmalloc-sys") / "upstream"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    context.run(
        [
            "cmake",
            *generator,
            "-S",
            tree,
            "-B",
            context.work / "cmake",
            "-DSNMALLOC_BUILD_TESTING=OFF",
            "-DCMAKE_BUILD_TYPE=Release",
        ]
    )
    context.progress("compiling")
    context.run(
        ["cmake", "--build", context.work / "cmake", "--target", "snmallocshim", "-j", context.jobs]
    )
    shutil.copyfile(context.work / "cmake" / "libsnmallocshim.so", context.output)


def _rpmalloc(context):
    source = context.crate("rpmalloc-sys") / "rpmalloc" / "rpmalloc" / "rpmalloc.c"
    flags = (
        "-O3 -DNDEBUG -DENABLE_PRELOAD=1 -DENABLE_OVERRIDE=1 -D_GNU_SOURCE -fPIC -shared".split()
    )
    context.run([*compiler("c"), *flags, source, "-o", context.output, "-lpthread", "-ldl"])


def _rpmalloc_version(crate):
    return (crate / "rpmalloc" / "CHANGELOG").read_text().split()[0]


def _tcmalloc(context):
    crate = context.crate("libtcmalloc-sys")
    # The crate's build script lists the files; malloc_bridge.cc is Rust glue around tcmalloc.cc.
    listed = re.findall(r'"(c_src/[^"]+\.(?:cc|S))"', (crate / "build.rs").read_text())
    files = [name for name in listed if "_bridge.cc" not in name]
    files.append("c_src/tcmalloc/tcmalloc/tcmalloc.cc")
    # 8 KiB pages are tcmalloc's default; without the crate's TCMALLOC_INTERNAL_METHODS_ONLY it
    # overrides malloc and operator new. Interposition inside the object is off so that -fPIC does
    # not cost tcmalloc the inlining that it has when it is linked statically.
    flags = (
        "-std=c++17 -O3 -DNDEBUG -DNOMINMAX -DTCMALLOC_INTERNAL_8K_PAGES -fPIC "
        "-fno-semantic-interposition -fno-omit-frame-pointer -w"
    ).split()
    flags += [f"-I{crate}/c_src/abseil-cpp", f"-I{crate}/c_src/tcmalloc"]
    objects = [context.work / (name.replace("/", "_") + ".o") for name in files]
    done = 0

    def compile_one(pair):
        name, target = pair
        context.run([*compiler("c++"), *flags, "-c", crate / name, "-o", target])

    with ThreadPoolExecutor(context.jobs) as pool:
        futures = [pool.submit(compile_one, pair) for pair in zip(files, objects)]
        try:
            for future in futures:
                future.result()
                done += 1
                context.progress(f"compiling {done}/{len(files)}")
        except BuildError:
            for future in futures:
                future.cancel()
            raise
    context.progress("linking")
    context.run(
        [
            *compiler("c++"),
            "-shared",
            "-Wl,-Bsymbolic-functions",
            *objects,
            "-o",
            context.output,
            "-lpthread",
            "-ldl",
        ]
    )


def _tcmalloc_version(crate):
    return f"{_last_release_date(crate)} (crate {crate.name.rsplit('-', 1)[1]})"


def _last_release_date(crate):
    """tcmalloc has no releases; the crate's changelog dates its snapshot."""
    return re.search(
        r"^## \[\d[^\n]* - (\d{4}-\d{2}-\d{2})$", (crate / "CHANGELOG.md").read_text(), re.M
    ).group(1)


_MI3, _MI3_VERSION = _mimalloc(3)
_MI2, _MI2_VERSION = _mimalloc(2)

# The cheapest builds come first, so that most peers are ready within a minute.
PEERS = [
    Peer("mimalloc3", "crate", "libmimalloc-sys", _MI3, _MI3_VERSION),
    Peer("mimalloc2", "crate", "libmimalloc-sys", _MI2, _MI2_VERSION),
    Peer("mimalloc3-wheel", "wheel", "cmeel-mimalloc", _mimalloc_wheel, None),
    Peer("rpmalloc", "crate", "rpmalloc-sys", _rpmalloc, _rpmalloc_version),
    Peer("snmalloc", "crate", "snmalloc-sys", _snmalloc, None),
    Peer("jemalloc-5.3.1", "crate", "tikv-jemalloc-sys", _jemalloc, lambda crate: "5.3.1"),
    # glibc registers the thread's rseq area first; without the tunable tcmalloc falls back from
    # per-CPU to per-thread caches.
    Peer(
        "tcmalloc-google",
        "crate",
        "libtcmalloc-sys",
        _tcmalloc,
        _tcmalloc_version,
        {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
    ),
]
