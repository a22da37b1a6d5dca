"""The gates of the design, and the two wider suites: their programs, figures and limits.

A gate is run as the list of its cases, one after another, and gives one sample: the figures of all
cases together. Its checks are judged one by one.
"""

from dataclasses import dataclass, field

from . import counts, extract
from .checks import Above, Own, Versus
from .curves import Smooth, Steady
from .trial import Case

MIB = 1 << 20


@dataclass
class Step:
    """One program of a gate: its case, how to read it, and a prefix for its figures' names."""

    case: Case
    read: callable
    prefix: str = ""
    only_subject: bool = False  # a demand on us alone, so peers do not run it
    # A peer that runs past the case's limit has no figures of this step. It keeps those of the
    # other steps.
    may_run_long: bool = False


@dataclass
class Gate:
    """One row of the design's table (or a suite): steps to run, checks to judge."""

    name: str
    title: str
    steps: list
    checks: list = field(default_factory=list)
    # True: contenders have no A B B A rounds of their own, and every peer runs in every round.
    all_in_every_round: bool = False
    most_rounds: int = 1000  # for gates whose trials take a minute
    derive: callable = None  # figures of all steps -> further figures
    share: int = 60  # of a time budget, relative to other gates: about the seconds of a full run
    counted: callable = None  # allocator -> figures that need no clock
    prepare: callable = None  # runner -> None, before the first trial; TrialFailed ends the gate


def build(workloads, bench, quick):
    """Every gate, by name. `workloads` and `bench` are the folders of the programs."""

    def lfh(name, threads):
        iterations = 1_600_000 if quick else 25_600_000
        words = "one thread" if threads == 1 else f"{threads} threads"
        case = Case(workloads / "lfh", ["--iterations", iterations, "--threads", threads])
        return Gate(
            name,
            f"LFH analysis, {iterations:,} operations, {words}",
            [Step(case, extract.lfh)],
            [
                Versus("seconds", "speed", "s", 1.0, speed=True),
                Versus("overhead", "overhead, mean of last 3", "%", 1.0, goal=0.75),
            ],
            share=170 if threads == 1 else 130,
        )

    def tokens():
        runs = 4 if quick else 12
        files = ["--files", 40] if quick else []
        case = Case(workloads / "tokens", ["--runs", runs, *files])
        return Gate(
            "tokens",
            f"token rounds, {runs} runs",
            [Step(case, extract.tokens)],
            [
                Versus("seconds", "speed", "s", 1.0, speed=True),
                Own("last_over_second", "last run / second", "", 1.02),
                Versus("peak", "peak above start", "MiB", 1.05),
                Own("trimmed", "above start after trim", "MiB", 4 * MIB),
            ],
            share=260,
        )

    def queue():
        entries, rounds = (50_000, 4) if quick else (1_000_000, 16)
        common = [
            "--entries",
            entries,
            "--rounds",
            rounds,
            "--strings",
            2,
            "--allocation",
            "malloc",
        ]
        kinds = [(name, "sequential") for name in ("queue-list", "list", "map")]
        kinds.append(("list", "at-once"))
        steps, parts = [], []
        for container, test in kinds:
            arguments = [*common, "--container", container, "--test", test]
            prefix = f"{container} {test}."
            parts.append(prefix)
            steps.append(Step(Case(workloads / "queue", arguments), extract.queue, prefix))

        def derive(figures):
            return {
                "seconds": sum(figures[part + "seconds"] for part in parts),
                "peak": max(figures[part + "peak"] for part in parts),
            }

        checks = [
            Versus("seconds", "speed, all together", "s", 1.0, speed=True),
            *(Versus(f"{p}seconds", f"  {p[:-1]}", "s", None, speed=True) for p in parts),
            *(Own(f"{p}slope", f"slowdown, {p[:-1]}", "", 0.02) for p in parts),
            Versus("peak", "peak above start", "MiB", 1.05),
        ]
        title = f"functor queue through node containers, {entries:,} entries, {rounds} rounds"
        return Gate("queue", title, steps, checks, derive=derive, share=400)

    def handoff():
        blocks = 1_000_000 if quick else 8_000_000
        plain = Case(workloads / "handoff", ["--blocks", blocks])
        mixed = Case(
            workloads / "handoff", ["--blocks", blocks // 2, "--bytes", 16, "--bytes-most", 2000]
        )
        checks = []
        for prefix, words in (("", "64 B"), ("mixed.", "16-2000 B")):
            for figure, pairing in (("one", "1 to 1"), ("many", "N to N")):
                key, title = f"{prefix}{figure}", f"{pairing}, {words}"
                checks.append(Versus(f"{key}_seconds", f"speed {title}", "s", 1.0, speed=True))
                checks.append(
                    Own(f"{key}_peak_over_live", f"peak above live {title}", "MiB", 4 * MIB)
                )
        steps = [Step(plain, extract.handoff), Step(mixed, extract.handoff, "mixed.")]
        title = f"producer/consumer, {blocks:,} blocks"
        return Gate("handoff", title, steps, checks, share=200)

    def phase():
        live = 20_000_000 if quick else 200_000_000
        rounds = 3 if quick else 10
        idle = 200 if quick else 2000
        case = Case(workloads / "phase", ["--live", live, "--rounds", rounds, "--idle-ms", idle])
        return Gate(
            "phase",
            f"phase change, {live // 1_000_000} MB of small objects, {rounds} phases",
            [Step(case, extract.phase)],
            [
                Versus("seconds", "speed", "s", 0.9, speed=True),
                Versus("peak_ratio", "peak RSS / peak live", "", 1.0),
                Versus("compacted", "resident after compact", "MiB", 0.9, goal=0.5),
            ],
            share=260,
        )

    def sizes():
        # The totals are as large as a paired run can afford. The lab's full sweep has all of them.
        share = 8 if quick else 1
        rounds = 4
        program = workloads / "sizes"

        # Some peers write to every page of 8 GiB for a block of one word, and take minutes a round.
        def step(name, variant, total, further=(), idle_ms=0, only=False, limit=12):
            arguments = ["--variant", variant, "--total", total // share, "--idle-ms", idle_ms]
            # Lifts the program's own limit, so that --total decides alone.
            arguments += ["--touched", 1 << 40]
            case = Case(program, [*arguments, *further], timeout=limit)
            return Step(
                case, extract.sizes, f"{name}.", only_subject=only, may_run_long=not only
            )

        in_rounds = ["--rounds", rounds]
        steps = [step(kind, kind, 64 * MIB, in_rounds) for kind in ("malloc", "aligned")]
        checks = [
            Versus("malloc.mean_ns", "speed, all sizes", "ns", 1.0, speed=True),
            Versus("aligned.mean_ns", "speed, all sizes, aligned", "ns", 1.0, speed=True),
        ]
        for size, gib in ((64, 1), (1024, 2), (65504, 8), (65536, 8), (1 << 20, 8)):
            name, words = f"large-{size}", f"speed, {size} B, {gib / share:g} GiB"
            further = ["--size", size, *in_rounds]
            steps.append(step(name, "malloc", gib * 1024 * MIB, further))
            checks.append(Versus(f"{name}.mean_ns", words, "ns", 1.0, speed=True))
        twice = ["--rounds", rounds + 2]
        for variant in ("alternating", "alternating-aligned"):
            steps.append(step(variant, variant, 8 * 1024 * MIB, twice))
            words = f"speed, 64 KiB and 64 KiB - 32 in turn{variant[11:].replace('-', ', ')}"
            checks.append(Versus(f"{variant}.mean_ns", words, "ns", 1.0, speed=True))
        # Memory after the last free is measured with the size that has the most resident.
        back = ["--size", 1024, "--rounds", 2]
        steps.append(step("back", "malloc", 2048 * MIB, back, 10_000 // share, True, limit=120))
        checks += [
            Smooth("malloc.ns.*", "worst cliff between sizes", "", 1.3),
            Smooth("aligned.ns.*", "worst cliff, aligned", "", 1.3),
            Steady("malloc.ageing.*", "last round / second", "", 1.02),
            Steady("alternating.ageing.*", "the same, 64 KiB alternating", "", 1.02),
            Steady("alternating-aligned.ageing.*", "the same, aligned", "", 1.02),
            Own("back.after_idle", f"{10 / share:g} s after the last free", "MiB", 64 * MIB),
        ]
        title = f"size sweep 16 B to 1 MiB, totals to {8 / share:g} GiB"
        return Gate("sizes", title, steps, checks, most_rounds=5, share=520)

    def startup():
        repeat = 40 if quick else 300
        steps = [
            Step(Case("/bin/true", [], repeat), extract.startup, "true."),
            Step(Case(bench / "tiny", [], repeat), extract.startup, "tiny."),
        ]
        checks = []
        for prefix, words in (("true.", "/bin/true"), ("tiny.", "one malloc")):
            checks.append(Versus(f"{prefix}seconds", f"time, {words}", "ms", 1.1, only="system"))
            checks.append(Above(f"{prefix}resident", f"resident, {words}", "MiB", MIB, "system"))
        title = f"start-up of a trivial program, {repeat} runs"
        return Gate("startup", title, steps, checks, share=60)

    # The longest gate is the last one, so that an interrupt loses the least.
    found = [startup(), lfh("lfh1", 1), lfh("lfh2", 2), tokens(), handoff(), phase(), queue()]
    found += [sizes(), instructions(bench)]
    return {gate.name: gate for gate in found if gate}


def instructions(bench):
    """What the fast paths execute, under callgrind. The golden file judges our counts, so there is
    no limit."""
    sizes = (16, 64, 1024)
    checks = [
        Versus(f"{function}.{size}", f"{function} of {size} B, instructions", "count", None)
        for size in sizes
        for function in ("malloc", "free")
    ]

    def counted(allocator):
        figures = {}
        for size in sizes:
            found = counts.of_case(bench / "golden_probe", f"pair_{size}", allocator)
            for function, costs in found.items():
                figures[f"{function}.{size}"] = costs["instructions"]
        return figures

    title = "warm malloc and free, counted by callgrind"
    return Gate("instructions", title, [], checks, share=40, counted=counted)


SHAPES = {
    "larson": [[]],
    "cache_scratch": [["--mode", "passive"], ["--mode", "active"]],
    "xmalloc": [[]],
    "sh6": [[]],
    "sh8": [[]],
    "mstress": [[]],
    "rptest": [[]],
    "drift": [["--mode", mode] for mode in ("cache", "vectors", "buffers", "phases", "aged",
                                            "texts", "growth", "appends", "arrays")],
}


def micro(bench, quick):
    """Single operations: a figure a case, no limit; every peer in every round."""
    operations = 100_000 if quick else 1_000_000
    case = Case(bench / "micro", ["--operations", operations])
    return Gate(
        "micro",
        f"single operations, {operations:,} a case",
        [Step(case, extract.micro)],
        all_in_every_round=True,
    )


def private_heaps(bench, quick, kind):
    """Private heaps, malloc, and std::pmr's pools over malloc: a figure a case, no limit. Each kind
    is a process."""
    operations = 100_000 if quick else 1_000_000
    arguments = ["--kind", kind, "--operations", operations]
    if quick:
        arguments += ["--heaps", 1000]
    limit = ""
    if kind == "locked-pool":
        limit = " (many: as many hundreds as the C library has thread keys for)"
    return Gate(
        f"heaps-{kind}",
        f"private heaps: {kind}{limit}",
        [Step(Case(bench / "heaps", arguments), extract.private_heaps)],
        all_in_every_round=True,
    )


HEAP_KINDS = ["heap", "malloc", "pool", "locked-pool"]


def shapes(bench, quick, wanted):
    """The literature's workloads, each a suite of its own; no limit."""
    gates = []
    for name in wanted:
        for arguments in SHAPES[name]:
            mode = arguments[1] if arguments else ""
            form = [] if quick else ["--full"]
            gates.append(
                Gate(
                    f"{name}-{mode}" if mode else name,
                    f"shape {name} {mode}".strip(),
                    [Step(Case(bench / name, [*form, *arguments]), extract.shape)],
                    [
                        Versus("seconds", "speed", "s", None, speed=True),
                        Versus("peak", "peak above start", "MiB", None),
                        Versus("freed", "after freeing all", "MiB", None),
                        Own("slope", "slowdown over rounds", "", None),
                    ],
                    all_in_every_round=True,
                )
            )
    return gates
