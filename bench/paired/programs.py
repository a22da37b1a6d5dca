"""Real programs of other projects: the input of each, and the check of its answer.

A program's answer is the same every time. The first trial of a gate runs under the system's malloc
and is not counted: every other trial must give its answer. Seeded code makes the large inputs; the
small ones lie in bench/programs.
"""

import hashlib
import random
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import extract
from .allocators import Allocator
from .checks import Versus
from .gates import Gate, Step
from .trial import Case, TrialFailed

SOURCES = Path(__file__).resolve().parent.parent / "programs"
TIMEOUT = 120  # seconds; a program takes one to five, so a program that reaches this hangs
# Searched before PATH, because a version manager puts a shell script there, which would be measured
# too.
SYSTEM_FOLDERS = "/usr/bin:/bin"


@dataclass(frozen=True)
class Program:
    """`arguments` and `client` are called with the folder of the inputs and the size. `make` is
    called with a random generator and the size, and returns the text of `input`."""

    name: str
    does: str
    commands: tuple  # the first one is measured; the other ones must exist
    packages: str  # Debian's
    size: int
    quick: int
    share: int  # of the time, relative to other programs: about tenths of a second for a run
    arguments: callable
    input: str | None = None
    make: callable = None
    client: callable = None
    written: str | None = None  # a file that is part of the answer
    environment: dict = field(default_factory=dict)
    version: str = "--version"

    def missing(self):
        """None if the machine has the program, otherwise the package to install."""
        lacking = [command for command in self.commands if not find(command)]
        if not lacking:
            return None
        return f"{', '.join(lacking)} not found (Debian: apt install {self.packages})"


def find(command):
    return shutil.which(command, path=SYSTEM_FOLDERS) or shutil.which(command)


def version(program):
    """The program's own text, or the part of it that looks like a version."""
    try:
        said = subprocess.run(
            [find(program.commands[0]), program.version],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    text = said.stdout + said.stderr
    found = re.search(r"\d+(\.\d+)+", text) or re.search(r"\d+", text)
    return found.group() if found else "unknown"


class Answers:
    """What a program answers. The first answer is the right one."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.right = None

    def read(self, outcome):
        """The figures of a trial whose answer is right."""
        answer = outcome.answer
        if self.program.written:
            path = self.folder / self.program.written
            try:
                answer += f"{path.name}: {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
                path.unlink()  # the next trial must write its own file
            except OSError:
                raise TrialFailed(f"wrote no {path.name}") from None
        if self.right is None:
            self.right = answer
        if answer != self.right:
            raise TrialFailed(
                f"another answer than the system's malloc: {self._difference(answer)}")
        return extract.program(outcome)

    def _difference(self, answer):
        lines, right = answer.splitlines(), self.right.splitlines()
        for number in range(max(len(lines), len(right))):
            one, other = (x[number][:40] if number < len(x) else "nothing" for x in (lines, right))
            if one != other:
                return f"'{one}', not '{other}'"
        return "other ends of lines"


def gate(program, folder, quick):
    """The suite of one program, with inputs in `folder`; no limit."""
    size = program.quick if quick else program.size
    command = find(program.commands[0]) or program.commands[0]
    case = Case(
        Path(command),
        program.arguments(folder, size),
        timeout=TIMEOUT,
        environment=program.environment,
        foreign=True,
        client=program.client(folder, size) if program.client else [],
    )
    answers = Answers(program, folder)

    def prepare(runner):
        if program.make:
            (folder / program.input).write_text(program.make(random.Random(1), size))
        try:
            answers.read(runner.run(case, Allocator("system", "", "system", None), 0))
        except TrialFailed as error:
            raise TrialFailed(f"not even under the system's malloc: {error}") from None

    return Gate(
        program.name,
        f"{program.commands[0]}: {program.does}",
        [Step(case, answers.read)],
        [
            Versus("cpu", "speed, processor", "s", None, speed=True),
            Versus("wall", "speed, clock", "s", None, speed=True),
            Versus("peak", "peak resident", "MiB", None),
            Versus("faults", "minor faults", "count", None),
        ],
        all_in_every_round=True,
        share=program.share,
        prepare=prepare,
    )


def factoring(generator, bits):
    """A solver must find two primes of so many bits from their product. It is hard, and
    satisfiable."""

    def prime():
        while True:
            value = generator.getrandbits(bits) | 1 << (bits - 1) | 1
            if all(value % divisor for divisor in range(3, int(value**0.5) + 1, 2)):
                return value

    product, width = prime() * prime(), 2 * bits
    return "\n".join(
        [
            "(set-logic QF_BV)",
            *(f"(declare-fun {name} () (_ BitVec {width}))" for name in "ab"),
            f"(assert (= (bvmul a b) (_ bv{product} {width})))",
            *(f"(assert (bvult {name} (_ bv{1 << bits} {width})))" for name in "ab"),
            f"(assert (bvugt a (_ bv1 {width})))",
            "(assert (bvule a b))",
            "(check-sat)",
            "(get-value (a b))",
            "",
        ]
    )


def statements(generator, thousands):
    """Rows of many lengths: inserted, indexed, partly deleted, inserted again, joined, grown,
    sorted."""

    def rows(first, longest):
        for begin in range(first, first + thousands * 1000, 500):
            values = (
                f"({i},'name{generator.randrange(thousands * 700)}',"
                f"'{'x' * generator.randrange(longest)}{i}')"
                for i in range(begin, begin + 500)
            )
            yield f"insert into t values {','.join(values)};"

    return "\n".join(
        [
            "create table t(a integer primary key, b text, c text);",
            *rows(0, 200),
            "create index ib on t(b);",
            "delete from t where a % 3 = 0;",
            *rows(thousands * 1000, 300),
            "select count(*), sum(length(c)) from t;",
            "select count(distinct b) from t;",
            "select count(*) from t x join t y on x.b = y.b;",
            "update t set b = b || 'x' where a % 5 = 0;",
            "select a, b from t order by c, a limit 1;",
            "",
        ]
    )


def elements(generator, thousands):
    lines = (
        f'<e id="{i}" n="name{i}"><a>{"z" * generator.randrange(20)}</a>'
        f'<b x="{generator.randrange(10)}">text {i}</b><!-- c --></e>'
        for i in range(thousands * 1000)
    )
    return "<r>" + "\n".join(lines) + "</r>\n"


def drawing(generator, pages):
    """PostScript: pages of curves and words."""

    def point():
        return f"{generator.randrange(600)} {generator.randrange(800)}"

    lines = ["%!PS"]
    for page in range(pages):
        for _ in range(4000):
            paint = generator.choice(["stroke", "fill"])
            lines.append(
                f"newpath {point()} moveto {point()} {point()} {point()} curveto "
                f"{generator.random():.2f} setgray {paint}"
            )
        lines.append(f"/Times-Roman findfont {20 + page} scalefont setfont 50 700 moveto")
        lines.append(f"(page {page}) show showpage")
    return "\n".join(lines) + "\n"


def objects(generator, thousands):
    """JSON: a list of objects with lists and strings of several lengths in them."""
    def tags():
        return ",".join(f'"t{generator.randrange(50)}"' for _ in range(generator.randrange(6)))

    lines = (
        f'{{"id":{i},"name":"n{generator.randrange(thousands * 170)}","v":{generator.random():.6f},'
        f'"tags":[{tags()}],'
        f'"o":{{"a":{generator.randrange(9)},"b":"{"x" * generator.randrange(60)}"}}}}'
        for i in range(thousands * 1000)
    )
    return "[" + ",\n".join(lines) + "]\n"


def words(generator, thousands):
    """Lines of six words. A few words are frequent, and most are rare."""
    return "".join(
        " ".join(f"w{int(generator.paretovariate(0.5) % 300_000)}" for _ in range(6)) + "\n"
        for _ in range(thousands * 1000)
    )


def graph(generator, nodes):
    """A tree, and for every third node one more edge."""
    edges = [f"n{i} -> n{generator.randrange(max(1, i))};" for i in range(nodes)]
    edges += [f"n{i} -> n{generator.randrange(nodes)};" for i in range(0, nodes, 3)]
    return "digraph g {\n" + "\n".join(edges) + "\n}\n"


def functions(generator, many):
    """C++ for a checker to follow: branches, loops, containers, and calls between functions."""
    lines = ["#include <string>", "#include <vector>"]
    for i in range(many):
        callee = f"f{generator.randrange(i)}(b, a % {1 + generator.randrange(9)}, v)" if i else "a"
        lines += [
            f"int f{i}(int a, int b, std::vector<std::string>& v) {{",
            f"  int x = a * {generator.randrange(99)}, *p = b > {generator.randrange(9)} ? &x : "
            f"nullptr;",
            f"  for (int i = 0; i < a; ++i) {{ if (i % {2 + generator.randrange(7)} == 0) x += b; "
            f"else x ^= i; }}",
            f'  if (x > {generator.randrange(999)} && p) v.push_back(std::string(x % 9, \'a\') + '
            f'"{i}");',
            f"  switch (b) {{ case 1: return x; case 2: x += {callee}; break; default: x -= a; }}",
            "  return p && !v.empty() ? *p + static_cast<int>(v.back().size()) : x;",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _script(name):
    return lambda folder, size: [SOURCES / name, size]


def _drawn(folder, size):
    # Only the last page is compared.
    sure = ["-q", "-dSAFER", "-dNOPAUSE", "-dBATCH"]
    return [*sure, "-sDEVICE=png16m", "-r72", f"-sOutputFile={folder / 'page.png'}",
            folder / "gs.ps"]


def _grouped(folder, size):
    query = (
        '[.[] | select(.v > 0.3) | {id, name, t: (.tags | join(","))}] | group_by(.name) '
        "| map({n: .[0].name, c: length}) | sort_by(.c) | .[-3:]"
    )
    return ["-c", query, folder / "jq.json"]


def _checked(folder, size):
    return ["-q", "--enable=all", f"--output-file={folder / 'cppcheck.txt'}",
            folder / "checked.cpp"]


def _compiled(folder, size):
    form = ["-std=c++20", f"-O{size}", "-g", "-c"]
    return [*form, "-o", folder / "headers.o", SOURCES / "headers.cpp"]


def _served(folder, size):
    own = ["--port", 0, "--unixsocket", folder / "redis.sock", "--dir", folder]
    return [*own, "--save", "", "--appendonly", "no", "--logfile", folder / "redis.log"]


ALL = {
    program.name: program
    for program in (
        Program(
            "z3",
            "factors a product of two primes as a formula of bit vectors",
            ("z3",),
            "z3",
            size=17,
            quick=10,
            share=9,
            arguments=lambda folder, size: [folder / "z3.smt2"],
            input="z3.smt2",
            make=factoring,
        ),
        Program(
            "lua",
            "trees of tables, strings, a table of strings",
            ("lua5.4",),
            "lua5.4",
            size=15,
            quick=10,
            share=10,
            arguments=_script("trees.lua"),
            version="-v",
        ),
        Program(
            "perl",
            "hashes of arrays, split, sort",
            ("perl",),
            "perl",
            size=100,
            quick=5,
            share=11,
            arguments=_script("hashes.pl"),
            environment={"PERL_HASH_SEED": "0"},
        ),
        Program(
            "ruby",
            "a hash of strings, rows sorted, trees of arrays",
            ("ruby",),
            "ruby",
            size=80,
            quick=5,
            share=12,
            arguments=_script("hashes.rb"),
        ),
        Program(
            "sqlite",
            "a database in memory: insert, index, delete, join, sort",
            ("sqlite3",),
            "sqlite3",
            size=140,
            quick=2,
            share=10,
            arguments=lambda folder, size: ["-bail", ":memory:", f".read {folder / 'sqlite.sql'}"],
            input="sqlite.sql",
            make=statements,
        ),
        Program(
            "xml",
            "reads a large document into a tree and counts in it",
            ("xmllint",),
            "libxml2-utils",
            size=250,
            quick=5,
            share=9,
            arguments=lambda folder, size: ["--xpath", "count(//b[@x=7])", folder / "xml.xml"],
            input="xml.xml",
            make=elements,
        ),
        Program(
            "gs",
            "draws curves and words on pages",
            ("gs",),
            "ghostscript",
            size=5,
            quick=1,
            share=7,
            arguments=_drawn,
            input="gs.ps",
            make=drawing,
            written="page.png",
        ),
        Program(
            "php",
            "a hash of strings, rows sorted, to JSON and back",
            ("php",),
            "php-cli",
            size=150,
            quick=5,
            share=9,
            arguments=_script("rows.php"),
            # Disables PHP's own heap, which would take everything from ours in blocks of 2 MiB.
            environment={"USE_ZEND_ALLOC": "0"},
        ),
        Program(
            "python",
            "records to JSON and back, lists in a dictionary, trees of objects",
            ("python3",),
            "python3",
            size=30,
            quick=2,
            share=9,
            arguments=_script("records.py"),
            # Disables Python's own pools of small blocks.
            environment={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"},
        ),
        Program(
            "clang",
            "compiles a small file with the standard library's heaviest headers",
            ("clang++",),
            "clang",
            size=1,
            quick=0,
            share=31,
            arguments=_compiled,
            written="headers.o",
        ),
        Program(
            "redis",
            "serves redis-benchmark over a socket; the server alone counts",
            ("redis-server", "redis-benchmark", "redis-cli"),
            "redis",
            size=51_200,
            quick=3200,
            share=18,
            arguments=_served,
            client=lambda folder, size: ["sh", SOURCES / "redis.sh", folder / "redis.sock", size],
        ),
        Program(
            "jq",
            "reads a list of objects, selects, groups and sorts",
            ("jq",),
            "jq",
            size=60,
            quick=2,
            share=10,
            arguments=_grouped,
            input="jq.json",
            make=objects,
        ),
        Program(
            "gawk",
            "counts words in a table whose entries come and go, sorts them",
            ("gawk",),
            "gawk",
            size=700,
            quick=5,
            share=10,
            arguments=lambda folder, size: ["-f", SOURCES / "words.awk", folder / "gawk.txt"],
            input="gawk.txt",
            make=words,
        ),
        Program(
            "dot",
            "lays a graph out",
            ("dot",),
            "graphviz",
            size=620,
            quick=60,
            share=10,
            arguments=lambda folder, size: ["-Tsvg", "-o", folder / "dot.svg", folder / "dot.gv"],
            input="dot.gv",
            make=graph,
            written="dot.svg",
            version="-V",
        ),
        Program(
            "cppcheck",
            "checks C++ functions that call each other",
            ("cppcheck",),
            "cppcheck",
            size=500,
            quick=10,
            share=10,
            arguments=_checked,
            input="checked.cpp",
            make=functions,
            written="cppcheck.txt",
        ),
        Program(
            "octave",
            "a structure by names, cells of strings, a vector that grows, matrices",
            ("octave-cli",),
            "octave",
            size=60,
            quick=2,
            share=15,
            arguments=lambda folder, size: ["-q", "--no-init-file", SOURCES / "cells.m", size],
        ),
        Program(
            "tcl",
            "an array of lists, sorted, joined to one string",
            ("tclsh",),
            "tcl",
            size=300,
            quick=5,
            share=8,
            arguments=_script("arrays.tcl"),
        ),
    )
}
