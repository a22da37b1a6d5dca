"""Demands on a whole sweep of sizes: no cliff between neighbours, no size that ages."""

import re
from dataclasses import dataclass

from . import ratios
from .checks import Verdict

PAGE = 4096


def by_size(rounds, allocator, pattern):
    """{size: samples} of the figures whose name is `pattern` with the size for its star."""
    matcher = re.compile(re.escape(pattern).replace(r"\*", r"(\d+)") + "$")
    found = {}
    for samples in rounds:
        for sample in samples.get(allocator, []):
            for name, value in sample.items():
                match = matcher.match(name)
                if match and value is not None:
                    found.setdefault(int(match.group(1)), []).append(value)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Smooth:
    """No size is much dearer than its neighbours, counted per page that it touches.

    Only a block's first word is written, so a block of a page or more touches one page and a
    smaller one its share of a page. A size may cost more than its smaller neighbour in proportion
    to the pages touched; it may never cost more than its larger neighbour.
    """

    figure: str  # with a star for the size
    title: str
    unit: str
    limit: float
    speed = False
    goal = None
    only = None

    def candidates(self, screening, peers, within):
        return []

    @staticmethod
    def worst(costs):
        """(ratio, size) of the size with the largest ratio, from {size: cost}."""
        sizes = sorted(costs)
        worst = (0.0, None)
        for i, size in enumerate(sizes):
            pages = min(1.0, size / PAGE)
            if i > 0:
                below = sizes[i - 1]
                allowed = costs[below] * pages / min(1.0, below / PAGE)
                worst = max(worst, (costs[size] / allowed, size))
            if i + 1 < len(sizes):
                worst = max(worst, (costs[size] / costs[sizes[i + 1]], size))
        return worst

    def judge(self, screening, final, subject, peers):
        verdict = Verdict(self)
        rounds = final or screening

        def worst_of(allocator, among):
            samples = by_size(among, allocator, self.figure)
            costs = {size: ratios.estimate(values).median for size, values in samples.items()}
            return self.worst(costs) if len(costs) > 1 else (None, None)

        verdict.own, size = worst_of(subject, rounds)
        if verdict.own is None:
            verdict.note = "no sweep"
            return verdict
        verdict.met = verdict.own <= self.limit
        verdict.note = f"at {size} B"
        others = {peer: worst_of(peer, screening)[0] for peer in peers}
        others = {peer: value for peer, value in others.items() if value is not None}
        if others:
            verdict.peer = min(others, key=others.get)
            verdict.peer_value = others[verdict.peer]
        return verdict


@dataclass(frozen=True)
class Steady:
    """No size ages. The demand is unmet if some size's last round is surely slower than its second:
    if the interval of its ratio lies above the limit."""

    figure: str
    title: str
    unit: str
    limit: float
    speed = False
    goal = None
    only = None

    def candidates(self, screening, peers, within):
        return []

    def judge(self, screening, final, subject, peers):
        verdict = Verdict(self)
        estimates = {
            size: ratios.estimate(values)
            for size, values in by_size(final or screening, subject, self.figure).items()
        }
        if not estimates:
            verdict.note = "no sweep"
            return verdict
        worst = max(estimates, key=lambda size: estimates[size].low)
        verdict.estimate = estimates[worst]
        verdict.own = verdict.estimate.median
        verdict.met = verdict.estimate.low <= self.limit
        ageing = sum(estimate.low > self.limit for estimate in estimates.values())
        verdict.note = f"at {worst} B; {ageing} of {len(estimates)} sizes age"
        return verdict
