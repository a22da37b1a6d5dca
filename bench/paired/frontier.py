"""The grid of bench/frontier, and which heap is ahead at each of its points.

A point is live bytes, a mix of sizes, the order of frees, and threads: `16M/medium/random/1`. Two
figures count. Speed is operations (a block allocated, another freed) a second of processor time,
after the table is filled. Overhead is (resident - others) / live - 1: of the averages over the
later checkpoints, or of the two peaks. The others are the pages of files and the experiment's
tables; what a heap has mapped before the first request is charged, for all heaps alike.
"""

import fnmatch
import itertools
import re
import statistics
from dataclasses import dataclass

from . import ratios
from .errors import UsageError

# name: what --sizes of the program says, operations of the long form (about a second of the
# system's malloc)
MIXES = {
    "small": ("16-512", 6_000_000),
    "kib": ("16-1K", 6_000_000),
    "medium": ("512-16K", 4_000_000),
    "nine": ("nine", 4_000_000),
    "lognormal": ("lognormal:256", 6_000_000),
    "large": ("16K-256K", 600_000),
    "wide": ("log:16-1M", 1_000_000),
}
ORDERS = ("random", "fifo", "hot", "lifo", "burst", "shared")
QUICK = 50  # the short form has a fiftieth of the operations
WARM = 0.25  # of the checkpoints after the fill, the first share is not judged

# A peer is ahead if it is better by more than this share. For overhead, also by this share of the
# live bytes.
TOLERANCE, LEAST_OVERHEAD = 0.02, 0.002
FASTEST = 0.95  # of the fastest's speed: a slower Loam is listed
HALF = 0.5  # of the fastest's speed: slower peers are not compared by memory


@dataclass(frozen=True)
class Point:
    """One point of the grid."""

    live: str
    mix: str
    order: str
    threads: int

    @property
    def name(self):
        return f"{self.live}/{self.mix}/{self.order}/{self.threads}"

    def arguments(self, quick, seed):
        sizes, operations = MIXES[self.mix]
        operations = operations // QUICK if quick else operations
        return ["--live", self.live, "--sizes", sizes, "--order", self.order, "--threads",
                self.threads] + [
            "--operations", operations, "--seed", seed
        ]  # fmt: skip


def grid():
    """The points that are measured unless some are named: 80."""
    orders = itertools.product(("16M", "256M"), ("small", "medium", "nine", "wide"),
                               ("fifo", "hot", "lifo", "burst"))
    return [
        *(Point(live, mix, "random", 1) for live,
          mix in itertools.product(("4M", "16M", "64M", "256M"), MIXES)),
        *(Point("1M", mix, "random", 1) for mix in ("small", "kib", "medium")),
        *(Point("1G", mix, "random", 1) for mix in ("small", "medium", "nine")),
        *(Point(live, mix, order, 1) for live, mix, order in orders),
        *(Point(live, mix, "random", 2) for live,
          mix in itertools.product(("16M", "256M"), ("small", "medium", "nine", "wide"))),
        *(Point(live, mix, "shared", 2) for live,
          mix in itertools.product(("4M", "16M", "256M"), ("small", "medium"))),
    ]


def find(patterns):
    """The grid's points that match one of the patterns. A complete name may also be a point outside
    the grid."""
    known, found = grid(), []
    for pattern in patterns:
        matching = [point for point in known if fnmatch.fnmatchcase(point.name, pattern)]
        found += matching or [parse(pattern)]
    return list(dict.fromkeys(found))


def parse(name):
    words = name.split("/")
    good = len(words) == 4 and re.fullmatch(r"\d+[KMG]", words[0]) and re.fullmatch(r"[1-9]\d?",
                                                                                    words[3])
    if not good or words[1] not in MIXES or words[2] not in ORDERS:
        raise UsageError(
            f"no point is called {name}; a name is LIVE/MIX/ORDER/THREADS such as "
            f"16M/medium/random/1, or a pattern such as "
            f"'*/small/*' (mixes: {', '.join(MIXES)}; orders: {', '.join(ORDERS)})"
        )
    return Point(words[0], words[1], words[2], int(words[3]))


def figures(outcome):
    """{figure: number} of one trial."""
    steady = outcome.series("steady")
    later = steady[int(len(steady) * WARM) :]
    start = outcome.start
    base = start["baseline_resident_bytes"] - start.get("baseline_anonymous_bytes",
                                                        0) + start.get("tables_bytes", 0)
    live = statistics.mean(line["live_bytes"] for line in later)
    resident = statistics.mean(line["resident_bytes"] for line in later)
    seconds = sum(line["processor_seconds"] for line in steady)
    return {
        "speed": sum(line["operations"] for line in steady) / max(seconds, 1e-9),
        "average": (resident - base) / live - 1,
        "peak": (outcome.end["peak_resident_bytes"] - base) / outcome.end["peak_live_bytes"] - 1,
        "fill_seconds": outcome.series("fill")[0]["processor_seconds"],
        "minor_faults": steady[-1]["minor_faults"],
        "huge_bytes": steady[-1]["huge_bytes"],
        "touch": start.get("touch_ns", 0.0) / max(start.get("touch_again_ns", 0.0), 1.0),
    }


@dataclass
class Standing:
    """A heap of ours at a point, beside the peers. Ratios of speed are the peer's over ours."""

    speed: float
    overhead: float
    ahead: list  # peers that are ahead in both figures
    fastest: tuple  # (peer, ratio)
    smallest: tuple  # (peer, overhead), of those that have half of the fastest's speed
    slow: bool
    large: bool


def smaller(one, other, tolerance=TOLERANCE):
    """Whether an overhead is smaller than another by more than the tolerance."""
    return other - one > max(tolerance * abs(other), LEAST_OVERHEAD)


def stand(rounds, ours, peers, memory="average", tolerance=TOLERANCE):
    """The standing of one heap of ours. None if it has no figures, or no peer has."""
    overhead = {name: ratios.median_of(rounds, name, memory) for name in (ours, *peers)}
    speed = {}
    for peer in peers:
        found = ratios.paired(rounds, peer, ours, "speed")
        if found:
            speed[peer] = found.median
    if overhead[ours] is None or not speed:
        return None
    fastest = max(speed.items(), key=lambda item: item[1])
    able = [peer for peer, ratio in speed.items() if ratio >= HALF * max(1.0, fastest[1])]
    smallest = min(((peer, overhead[peer]) for peer in able), key=lambda item: item[1],
                   default=None)
    return Standing(
        ratios.median_of(rounds, ours, "speed"),
        overhead[ours],
        [
            peer
            for peer, ratio in speed.items()
            if ratio > 1 + tolerance and smaller(overhead[peer], overhead[ours], tolerance)
        ],
        fastest,
        smallest,
        fastest[1] * FASTEST > 1,
        smallest is not None and smaller(smallest[1], overhead[ours], tolerance),
    )
