#!/usr/bin/env python3
"""Checks the rules of src/ that a compiler does not check: which layer may include and name which,
where the system and the processor may be named, what libloam.so may need, and how long a file may
be. For every language: no line is wider than 100 columns.

    tools/check_layers.py [--root DIR] [--library build/libloam.so]
                          [--recorder build/libloam-record.so]
    tools/check_layers.py --self-test

Exit status: 0 nothing found, 1 something found, 2 bad usage.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Bottom to top: a layer may include itself and the layers before it.
LAYERS = ["base", "os", "map", "pages", "small", "observers", "cache", "hardening", "private",
          "counters",
          "heap", "api"]
# From this layer on the public headers are known.
FIRST_PUBLIC_LAYER = "private"

INTRINSIC_FILES = {"base/bits.h", "base/cpu.h"}
INTRINSICS = re.compile(
    r"#\s*include\s*<(?:\w*mmintrin|x86intrin|immintrin|arm_\w+|cpuid)\.h>"
    r"|\b_mm\d*_\w+\s*\(|\b__builtin_ia32_\w+|\b_(?:tzcnt|lzcnt|pdep|pext|bextr|blsr)_\w+"
    r"|\basm\s+(?:volatile\s*)?\(|\b__asm__\b")
# Macros that name a system. The compiler and the processor have rules of their own.
SYSTEM_MACROS = re.compile(
    r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\b(?:_WIN32|_WIN64|WIN32|__linux__|__linux|__APPLE__|"
    r"__MACH__|__FreeBSD__|__NetBSD__|__OpenBSD__|__sun|__ANDROID__|__unix__|__CYGWIN__|"
    r"__MINGW32__|__GLIBC__|__HAIKU__)\b")
# Headers that belong to one system; their place is os/ (and api/ for the family's own errno.h).
SYSTEM_HEADERS = re.compile(r"^\s*#\s*include\s*<(sys/\w+\.h|linux/\S+|unistd\.h|windows\.h|"
                            r"pthread\.h|sched\.h|dlfcn\.h|mach/\S+)>")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"|<(?=loam/))([^">]+)[">]')

# Types: the place of the definition, and the places of mere declarations. A friend is admitted by
# name, which is no use of it.
_TYPE = r"^\s*(?:class|struct|union|enum(?:\s+class)?)\s+"
DEFINED_TYPE = re.compile(
    _TYPE + r"(?:(?:LOAM_\w+(?:\([^)]*\))?|alignas\(\w+\))\s+)*((?:\w+::)*\w+)\s*"
    r"(?:final\s*)?(?::[^:;{][^;{]*)?\{", re.M)
DECLARED_TYPE = re.compile(_TYPE + r"(\w+)\s*;", re.M)
NAMESPACE = re.compile(r"^\s*namespace\s+((?:\w+::)*\w+)\s*\{", re.M)
QUALIFIED = re.compile(r"(?<![\w:])(\w+)::(?=\w)")
# In comments a word with two capitals is a name. One with a single capital may be a plain word.
TYPE_IN_WORDS = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b")
FILE_IN_WORDS = re.compile(rf"(?<![\w/])(?:src/)?((?:{'|'.join(LAYERS)})/\w+\.(?:h|cpp))\b")

REPORT_LINES = 500
FAIL_LINES = 800

COLUMNS = 100
# Files whose lines may be wider: what a generator writes. (Documents have a rule of their own in
# check_docs; pages, styles and scripts of tool/loam-report are output of the tool.)
GENERATED = re.compile(r"\A(?:#!.*\n)?\W*(?:Generated|Written) .*\bby (?:tools|bench|tests)/")
# Lines that may be wider: a target's help, which `make help` reads from its line, and a link.
WIDE_LINE = re.compile(r"^[\w-]+:.* ## |^\W*https?://\S+$")

# The C library's own symbols. All others would be run-time dependencies.
ALLOWED_LIBRARIES = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2",
                     "ld-linux-aarch64.so.1"}
# C++ run-time symbols that may be *weak* references: operator new throws through them when the
# program has a C++ library, and aborts when it has none.
CXX_SYMBOL = re.compile(r"^(?:_Z|__cxa_(?!atexit|finalize|thread_atexit_impl)|__gxx_|_Unwind_)")

# The names that libloam.so may need of other libraries. A program or a tool may define each of
# these names itself and allocate in there. So none of them is called with a lock of the heap held,
# except the last row (decision 64).
_UNLOCKED = "called without a lock of the heap's"
ALLOWED_IMPORTS = {
    **dict.fromkeys(["environ", "__environ", "__libc_single_threaded"], "a variable, no call"),
    **dict.fromkeys(["_ZSt15get_new_handlerv", "_ZSt17__throw_bad_allocv"],
                    "operator new's, " + _UNLOCKED),
    **dict.fromkeys(["_IO_list_lock", "_IO_list_unlock", "_IO_list_resetlock"],
                    "around fork(), before the heap's locks are taken and after they are left"),
    **dict.fromkeys(["pthread_attr_init", "pthread_attr_setdetachstate",
                     "pthread_attr_setstacksize", "pthread_create",
                     "sysconf"], "for the heap's own threads, " + _UNLOCKED),
    **dict.fromkeys(["pthread_key_create", "pthread_key_delete", "pthread_setspecific",
                     "pthread_getspecific"],
                    "a thread's end, and the last error of the Win32 calls, " + _UNLOCKED),
    **dict.fromkeys(["pthread_atfork", "__register_atfork", "dlopen", "dlsym"],
                    "registers fork handlers, finds other libraries' "
                                                                     "functions, " + _UNLOCKED),
    "sigaction": "when hardening starts, " + _UNLOCKED,
    "munmap": "where a library listens to it to learn which memory went (decision 121), "
    + _UNLOCKED,
    "getauxval": "at the start, when options are read and when a folder is made, " + _UNLOCKED,
    "fprintf": "malloc_info() and its kin write to the caller's stream, " + _UNLOCKED,
    "__errno_location": "a thread's errno: the C library itself calls it before anything else",
    **dict.fromkeys(["memcpy", "memmove", "memset", "memcmp", "strlen"],
                    "with locks held, too: the compiler makes calls of these, and one that "
                    "allocates would need itself"),
}

# The names that libloam-record.so may need of other libraries. It runs inside malloc, at any moment
# of any program. So no function may be here that normally allocates, or that is a point of
# cancellation.
RECORDER_IMPORTS = {
    *["environ", "__environ", "__errno_location", "getenv", "getppid", "syscall", "abort"],
    *["memcpy", "memset", "strchr", "strrchr", "strlen", "strnlen", "sysconf", "strcmp", "strstr",
      "getauxval", "getrlimit", "getrlimit64", "sigaltstack"],
    # At the start of a process or a thread, outside of the writing of events.
    *["dlsym", "dlopen", "dladdr", "dlerror", "dl_iterate_phdr", "__register_atfork",
      "pthread_atfork", "pthread_key_create",
      "pthread_setspecific"],
    # The compiler's names, which are weak.
    *["__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable",
      "_ITM_registerTMCloneTable", "__stack_chk_fail"],
}
RECORDER_EXPORTS = re.compile(
    r"^(loam_recorder|malloc|calloc|realloc|reallocarray|free|cfree|free_sized|free_aligned_sized|"
    r"posix_memalign|memalign|aligned_alloc|valloc|pvalloc|malloc_trim|mmap|mmap64|munmap|mremap|"
    r"prctl|loam_record_mark|_Zn[wa]\w+|_Zd[la]\w+)$")


class Findings:
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.notes: list[str] = []

    def error(self, where: str, what: str) -> None:
        self.errors.append(f"{where}: {what}")

    def note(self, where: str, what: str) -> None:
        self.notes.append(f"{where}: {what}")


COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)


def strip_comments(text: str) -> str:
    """Blanks comments and keeps line numbers. Literals stay good enough for these rules."""
    def blank(match: re.Match[str]) -> str:
        found = match.group(0)
        return found if found[0] in "\"'" else re.sub(r"[^\n]", " ", found)
    return COMMENT_OR_LITERAL.sub(blank, text)


def comments_of(text: str) -> list[tuple[int, str]]:
    """Every comment with the number of its first line."""
    return [(text.count("\n", 0, match.start()) + 1, match.group(0))
            for match in COMMENT_OR_LITERAL.finditer(text) if match.group(0)[0] == "/"]


def allowed_layers(layer: str) -> list[str]:
    return LAYERS[:LAYERS.index(layer) + 1]


def check_source(path: Path, source_root: Path, findings: Findings) -> None:
    relative = path.relative_to(source_root)
    where = f"src/{relative}"
    layer = relative.parts[0]
    if len(relative.parts) != 2:
        findings.error(where, "sources lie in src/LAYER/, neither higher nor deeper")
        return
    if layer not in LAYERS:
        findings.error(where, f"'{layer}' is no layer; the layers are {' '.join(LAYERS)}")
        return
    text = strip_comments(path.read_text())
    for number, line in enumerate(text.splitlines(), 1):
        at = f"{where}:{number}"
        if match := INCLUDE.match(line):
            check_include(match.group(1), layer, at, source_root, findings)
        if layer != "os" and SYSTEM_MACROS.match(line):
            findings.error(at, "an operating system is named outside os/; put it behind os/os.h")
        if layer not in ("os", "api") and (match := SYSTEM_HEADERS.match(line)):
            findings.error(at, f"<{match.group(1)}> belongs to a system; only os/ may include it")
        if layer != "os" and str(relative) not in INTRINSIC_FILES and INTRINSICS.search(line):
            findings.error(at, "a processor intrinsic outside base/bits.h and base/cpu.h")


def check_include(target: str, layer: str, at: str, source_root: Path,
                  findings: Findings) -> None:
    first = target.split("/")[0]
    if first == "loam":
        known = LAYERS[LAYERS.index(FIRST_PUBLIC_LAYER):]
        if layer not in known:
            findings.error(at, f'"{target}" is the public interface; only '
                               f'{", ".join(known)} know it')
        return
    if first not in LAYERS:
        findings.error(at, f'"{target}" names no layer; write "LAYER/FILE.h"')
        return
    if first not in allowed_layers(layer):
        findings.error(at, f'"{target}" stands above {layer}; it may include only '
                           f'{", ".join(allowed_layers(layer))}')
    if not (source_root / target).is_file():
        findings.error(at, f'"{target}" does not exist')


def check_names(sources: list[Path], source_root: Path, findings: Findings) -> None:
    """A layer must not know the layers above it: neither by a declaration nor in words. (Code must
    include or declare what it uses, so only comments are searched for names.)"""
    layer_of = {path: LAYERS.index(name) for path in sources
                if (name := path.relative_to(source_root).parts[0]) in LAYERS}
    texts = {path: path.read_text() for path in layer_of}
    lowest: dict[str, int] = {}
    for path, text in texts.items():
        for match in DEFINED_TYPE.finditer(strip_comments(text)):
            name = match.group(1).split("::")[-1]
            lowest[name] = min(layer_of[path], lowest.get(name, len(LAYERS)))
        for match in NAMESPACE.finditer(text):
            for name in match.group(1).split("::"):
                lowest[name] = min(layer_of[path], lowest.get(name, len(LAYERS)))

    def is_above(name: str, path: Path) -> bool:
        return lowest.get(name, -1) > layer_of[path]

    for path, text in texts.items():
        where = f"src/{path.relative_to(source_root)}"
        code = strip_comments(text)
        for match in DECLARED_TYPE.finditer(code):
            if is_above(match.group(1), path):
                line = code.count("\n", 0, match.start(1)) + 1
                findings.error(f"{where}:{line}",
                               f"declares {match.group(1)}, which a layer above defines "
                               f"({LAYERS[lowest[match.group(1)]]}): an include by other means")
        for number, words in comments_of(text):
            names = TYPE_IN_WORDS.findall(words) + QUALIFIED.findall(words)
            for name in dict.fromkeys(names):
                if is_above(name, path):
                    findings.error(f"{where}:{number}",
                                   f"a comment names {name} of {LAYERS[lowest[name]]}, a layer "
                                   "above; say what it means here")
            for file in FILE_IN_WORDS.findall(words):
                if not (source_root / file).is_file():
                    findings.error(f"{where}:{number}",
                                   f"a comment names {file}, which does not exist")


# The documents' lists of layers, each as (document, pattern of one name, bottom first?).
LISTS = [
    ("src/README.md", re.compile(r"^(\w+)  +\S", re.M), False),
    ("docs/architecture.md", re.compile(r"^\| `src/(\w+)` \|", re.M), False),
    ("CONTRIBUTING.md", re.compile(r"include order: `([\w\s]+)`"), True),
]


def check_lists(root: Path, findings: Findings) -> None:
    """The documents' lists of layers must be LAYERS, in order."""
    for document, pattern, bottom_first in LISTS:
        path = root / document
        text = path.read_text() if path.is_file() else ""
        listed = [layer for found in pattern.findall(text) for layer in found.split()]
        wanted = LAYERS if bottom_first else LAYERS[::-1]
        if listed != wanted:
            findings.error(document, f"lists the layers {' '.join(listed) or 'nowhere'}; they are "
                                     f"{' '.join(wanted)}")


def check_length(path: Path, root: Path, findings: Findings) -> None:
    lines = path.read_text(errors="replace").count("\n")
    where = str(path.relative_to(root))
    if lines <= REPORT_LINES:
        return
    if lines <= FAIL_LINES:
        findings.note(where, f"{lines} lines; over {REPORT_LINES} needs a reason")
        return
    notes = (root / "docs" / "decisions").glob("*.md")
    if not any(path.name in note.read_text() for note in notes):
        findings.error(where, f"{lines} lines; over {FAIL_LINES} needs a note in docs/decisions/ "
                              f"that names {path.name}")


def check_columns(path: Path, root: Path, findings: Findings) -> None:
    text = path.read_text(errors="replace")
    if GENERATED.match(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and not WIDE_LINE.match(line):
            findings.error(f"{path.relative_to(root)}:{number}",
                           f"{len(line)} columns; {COLUMNS} is the limit")


def is_narrow(path: Path) -> bool:
    """Whether it is code, of any language, or a script without a suffix."""
    if path.suffix in {".h", ".hpp", ".c", ".cpp", ".rs", ".py", ".cmake", ".toml", ".yml", ".yaml",
                       ".sh", ".sql", ".in", ".sbatch"}:
        return True
    if path.name in {"CMakeLists.txt", "Makefile", "rules"}:
        return True
    with path.open("rb") as file:
        return path.suffix == "" and file.read(2) == b"#!"


def tracked_sources(root: Path) -> list[Path]:
    """Hand-written code: the files that git knows or, without git, everything in the usual
    folders."""
    suffixes = {".h", ".hpp", ".c", ".cpp", ".rs", ".py", ".cmake"}
    return [path for path in tracked_files(root) if path.suffix in suffixes]


def tracked_files(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True)
    if listed.returncode == 0:
        paths = [root / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = [path for folder in ("src", "include", "native", "tool", "tests", "tools")
                 for path in (root / folder).rglob("*")]
    return [path for path in paths if path.is_file() and not path.is_symlink()
            and "vendor" not in path.relative_to(root).parts]


def check_library(library: Path, findings: Findings) -> None:
    def output(*command: str) -> list[str]:
        return subprocess.run(command, check=True, capture_output=True,
                              text=True).stdout.splitlines()

    name = library.name
    for line in output("readelf", "-dW", str(library)):
        if match := re.search(r"\(NEEDED\).*\[(.+)\]", line):
            if match.group(1) not in ALLOWED_LIBRARIES:
                findings.error(name, f"needs {match.group(1)} at run time")
        if "(TEXTREL)" in line:
            findings.error(name, "has text relocations")
    for line in output("nm", "-D", "--undefined-only", str(library)):
        kind, symbol = line.split()[-2:]
        versioned = symbol.partition("@")
        if kind not in ("w", "v") and CXX_SYMBOL.match(versioned[0]):
            findings.error(name, f"needs {symbol} of the C++ run-time library (weak references are "
                                 "the only ones allowed)")
        if versioned[0] not in ALLOWED_IMPORTS and not CXX_SYMBOL.match(versioned[0]):
            findings.error(name, f"calls {versioned[0]} of another library, which a program may "
                                 f"replace by one that "
                                 "allocates: ask the kernel (src/os/kernel.h), or say in "
                                 "ALLOWED_IMPORTS why it may be")
    # Three pointers of static TLS (decisions 4, 87). With more, dlopen of the library fails in
    # some programs.
    for line in output("readelf", "-lW", str(library)):
        if match := re.match(r"\s*TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", line):
            if int(match.group(1), 16) > 24:
                findings.error(name, f"uses {int(match.group(1), 16)} bytes of static TLS; "
                                     "three pointers (24) are the limit")
    exported = [line.split()[-1] for line in output("nm", "-D", "--defined-only", str(library))]
    allowed = re.compile(r"^(_Zn[wa]|_Zd[la]|loam_|LOAM_|malloc|calloc|realloc|free|posix_memalign|"
                         r"aligned_alloc|memalign|valloc|pvalloc|mall(?:info|opt)|cfree|"
                         r"__libc_\w+|__posix_memalign$|dlopen$|__register_atfork$|mlockall$|"
                         # waits (decision 136)
                         r"(__)?p?poll(_chk)?$|p?select$|epoll_p?wait2?$|u?sleep$|"
                         r"(clock_)?nanosleep$)")
    for symbol in exported:
        if not allowed.match(symbol.partition("@")[0]):
            findings.error(name, f"exports {symbol}, which is no part of the interface")


def check_recorder(library: Path, findings: Findings) -> None:
    def output(*command: str) -> list[str]:
        return subprocess.run(command, check=True, capture_output=True,
                              text=True).stdout.splitlines()

    name = library.name
    for line in output("readelf", "-dW", str(library)):
        if match := re.search(r"\(NEEDED\).*\[(.+)\]", line):
            if match.group(1) not in ALLOWED_LIBRARIES:
                findings.error(name, f"needs {match.group(1)} at run time")
    for line in output("nm", "-D", "--undefined-only", str(library)):
        symbol = line.split()[-1].partition("@")[0]
        if symbol not in RECORDER_IMPORTS:
            findings.error(name, f"calls {symbol} of another library: ask the kernel "
                                 f"(native/recorder/kernel.h), or add it "
                                 "to RECORDER_IMPORTS if it neither allocates nor is a point of "
                                 "cancellation")
    for line in output("nm", "-D", "--defined-only", str(library)):
        symbol = line.split()[-1].partition("@")[0]
        if not RECORDER_EXPORTS.match(symbol):
            findings.error(name, f"exports {symbol}, which is no hook")


def check(root: Path, library: Path | None, recorder: Path | None = None) -> Findings:
    findings = Findings()
    source_root = root / "src"
    sources = sorted(path for path in source_root.rglob("*") if path.suffix in {".h", ".cpp"})
    if not sources:
        findings.error("src", "no sources found; is this the repository's root?")
    for layer in LAYERS:
        if not any(path.relative_to(source_root).parts[0] == layer for path in sources):
            findings.error(f"src/{layer}", "the layer has no sources, so it is none; take it out "
                                           "of LAYERS in tools/check_layers.py")
    for path in sources:
        check_source(path, source_root, findings)
    check_names(sources, source_root, findings)
    check_lists(root, findings)
    for path in sorted(tracked_sources(root)):
        check_length(path, root, findings)
    for path in sorted(filter(is_narrow, tracked_files(root))):
        check_columns(path, root, findings)
    if library is not None:
        check_library(library, findings)
    if recorder is not None:
        check_recorder(recorder, findings)
    return findings


# --- The check checked: each rule broken once, on purpose ----------------------------------------

BROKEN = {
    "an include upwards": ("src/pages/a.h", '#include "cache/magazine.h"\n', "stands above pages"),
    "an include upwards between neighbours": ("src/hardening/a.cpp", '#include "private/heap.h"\n',
                                              "stands above hardening"),
    "a declaration upwards": ("src/map/a.h", "namespace loam {\nstruct PrivateThing;\n}\n",
                              "by other means"),
    "a comment upwards": ("src/map/a.h", "// As PrivateThing says.\n",
                          "a comment names PrivateThing of private"),
    "a comment about a function upwards": ("src/map/a.h", "// As counters_of::all() does.\n",
                                           "a comment names counters_of of counters"),
    "a comment about a file that is gone": ("src/map/a.h", "// See os/gone.h.\n",
                                            "os/gone.h, which does not exist"),
    "the public header in angle brackets": ("src/hardening/a.h", "#include <loam/loam.h>\n",
                                            "public interface"),
    "an include without a layer": ("src/map/a.h", '#include "magazine.h"\n', "names no layer"),
    "an include of nothing": ("src/map/a.h", '#include "base/gone.h"\n', "does not exist"),
    "a system outside os": ("src/heap/a.cpp", "#if defined(_WIN32)\n#endif\n", "outside os/"),
    "a system header outside os": ("src/heap/a.cpp", "#include <sys/mman.h>\n",
                                   "belongs to a system"),
    "an intrinsic elsewhere": ("src/small/a.h", "inline void f() { _mm_pause(); }\n",
                               "intrinsic outside"),
    "the public header low down": ("src/map/a.h", '#include "loam/loam.h"\n', "public interface"),
    "an unknown layer": ("src/utils/a.h", "\n", "is no layer"),
    "a folder too deep": ("src/base/detail/a.h", "\n", "neither higher nor deeper"),
    "a list that lacks a layer": ("src/README.md", "```\n" + "".join(
        f"{layer}  it\n" for layer in LAYERS[:0:-1]) + "```\n", "src/README.md: lists"),
    "a list in another order": ("docs/architecture.md", "".join(
        f"| `src/{layer}` | it |\n" for layer in LAYERS), "docs/architecture.md: lists"),
    "a list that is gone": ("CONTRIBUTING.md", "\n", "lists the layers nowhere"),
    "a wide line": ("src/base/a.h", "// " + "wide " * 20 + "\n", "is the limit"),
    "a wide line of a script": ("tools/a", "#!/bin/sh\n# " + "wide " * 20 + "\n", "a:2: 102"),
    "a wide line of CMake": ("src/CMakeLists.txt", "set(" + "wide " * 20 + ")\n", "is the limit"),
    "a file too long": ("src/base/a.h", "\n" * (FAIL_LINES + 1), "needs a note"),
}
GOOD = {
    "src/base/bits.h": "#include <immintrin.h>\n",
    "src/os/os.h": '#include "base/bits.h"\n#include <sys/mman.h>\n'
                   "#if defined(__linux__)\n#endif\n",
    "src/map/map.h": "struct Outer { friend struct PrivateThing; struct Inner; };\n",
    "src/pages/pages.h": "// Nothing is private here; os/os.h and src/base/bits.h are below.\n",
    "src/small/small.h": "class LOAM_CAPABILITY(\"lock\") Lock {};\n",
    "src/observers/call.h": '#include "os/os.h"\n',
    "src/cache/magazine.h": '#include "os/os.h"  // not "api/a.cpp"\n'
                            '/*\n#include "api/a.cpp"\n*/\n',
    "src/hardening/shadow.h": '#include "cache/magazine.h"\n',
    "src/private/heap.h": "#include <loam/loam.h>\nstruct alignas(64) PrivateThing : Outer {\n};\n",
    "src/counters/list.h": '#include "private/heap.h"\n// Reads PrivateThing.\n'
                           "namespace loam::counters_of {\n}\n",
    "src/heap/heap.h": '#include "counters/list.h"\n',
    "src/api/a.cpp": '#include "heap/heap.h"\n',
    "src/README.md": "```\n" + "".join(f"{layer}  it\n" for layer in LAYERS[::-1]) + "```\n",
    "docs/architecture.md": "".join(f"| `src/{layer}` | it |\n" for layer in LAYERS[::-1]),
    "CONTRIBUTING.md": f"include order: `{' '.join(LAYERS)}`\n",
    "Makefile": "docs: ## " + "help " * 25 + "\n",
    "src/base/generated.h": "// Generated from a list by tools/gen.py.\n// " + "wide " * 25 + "\n",
}


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def self_test_library(folder: Path) -> list[str]:
    """A library that needs libstdc++, exports a stray name, uses too much TLS and calls what a
    program may replace."""
    source = folder / "bad.cpp"
    source.write_text("#include <stdexcept>\n#include <sys/mman.h>\nthread_local long many[8];\n"
                      "void stray() { if (many[1]++) throw std::runtime_error(\"x\"); munmap(0, "
                      "0); }\n")
    library = folder / "libbad.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-ftls-model=initial-exec", "-o",
                    str(library), str(source)], check=True)
    findings = Findings()
    check_library(library, findings)
    wanted = ["needs libstdc++", "C++ run-time library", "static TLS", "no part of the interface",
              "calls munmap of another library"]
    check_recorder(library, findings)
    wanted += ["calls __cxa_throw of another library: ask", "which is no hook"]
    return [f"a bad library: nothing said '{words}'" for words in wanted
            if not any(words in error for error in findings.errors)]


def self_test() -> int:
    failures = []
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "good"
        write_tree(root, GOOD)
        if errors := check(root, None).errors:
            failures.append(f"a tree in order is refused: {errors}")
        for index, (name, (path, text, words)) in enumerate(BROKEN.items()):
            root = Path(temporary) / str(index)
            write_tree(root, {**GOOD, path: text})
            errors = check(root, None).errors
            if not any(words in error for error in errors):
                failures.append(f"{name}: wanted '{words}', got {errors}")
        for layer in LAYERS:
            root = Path(temporary) / f"without-{layer}"
            write_tree(root, {path: text for path, text in GOOD.items()
                              if not path.startswith(f"src/{layer}/")})
            words = f"src/{layer}: the layer has no sources"
            if not any(words in error for error in check(root, None).errors):
                failures.append(f"no folder src/{layer}: nothing said so")
        root = Path(temporary) / "noted"
        write_tree(root, {**GOOD, "src/base/long.h": "\n" * (FAIL_LINES + 1),
                          "docs/decisions/1.md": "Why `long.h` is long.\n",
                          "src/base/longish.h": "\n" * (REPORT_LINES + 1)})
        findings = check(root, None)
        if findings.errors or len(findings.notes) != 1:
            failures.append(f"a noted long file: {findings.errors} {findings.notes}")
        failures += self_test_library(Path(temporary))
    for failure in failures:
        print(failure)
    print(f"check_layers self-test: {len(BROKEN) + len(LAYERS) + 3 - len(failures)} as wanted, "
          f"{len(failures)} not")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--library", type=Path, help="the shared library to inspect as well")
    parser.add_argument("--recorder", type=Path, help="the recorder to inspect as well")
    parser.add_argument("--self-test", action="store_true", help="prove that each rule can fail")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    for library in filter(None, (arguments.library, arguments.recorder)):
        if not library.is_file():
            print(f"{library} does not exist; run 'make build' first", file=sys.stderr)
            return 2
    findings = check(arguments.root, arguments.library, arguments.recorder)
    for note in findings.notes:
        print(f"note: {note}")
    for error in findings.errors:
        print(error)
    if findings.errors:
        print(f"check_layers: {len(findings.errors)} found")
        return 1
    print("check_layers: in order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
