"""The kinds of demand that a gate makes, and how each is judged from the samples alone."""

from dataclasses import dataclass

from . import ratios


@dataclass
class Verdict:
    """One line of the table."""

    check: object
    own: float | None = None
    peer: str | None = None
    peer_value: float | None = None
    estimate: object = None
    met: bool | None = None
    goal_met: bool | None = None
    others: list | None = None  # (peer, Estimate) of the further contenders
    note: str = ""


def _within(value, limit, above):
    return value >= limit if above else value <= limit


@dataclass(frozen=True)
class Versus:
    """Against the best peer of the figure. `speed` is the peer's figure over ours (so above 1.0
    is better for us); without it the ratio is ours over the peer's, below 1.0 is better."""

    figure: str
    title: str
    unit: str
    limit: float | None
    goal: float | None = None
    speed: bool = False
    only: str | None = None  # a single opponent, such as the system's malloc

    def ratio(self, rounds, subject, peer):
        if self.speed:
            return ratios.paired(rounds, peer, subject, self.figure)
        return ratios.paired(rounds, subject, peer, self.figure)

    def candidates(self, screening, peers, within):
        """The peers whose screening figure (lower is better) is within a share of the best."""
        if self.only:
            return [self.only] if self.only in peers else []
        medians = {peer: ratios.median_of(screening, peer, self.figure) for peer in peers}
        medians = {peer: value for peer, value in medians.items() if value is not None}
        if not medians:
            return []
        best = min(medians.values())
        close = [p for p, v in medians.items() if v - best <= abs(best) * within or v == best]
        return sorted(close, key=medians.get)

    def judge(self, screening, final, subject, peers):
        verdict = Verdict(self)
        rounds = final or screening
        verdict.own = ratios.median_of(rounds, subject, self.figure)
        # Contenders are judged by their own A B B A rounds. All other peers, and in a suite or an
        # interrupted run all of them, are judged by the rounds with all allocators.
        estimates = {}
        for peer in [self.only] if self.only else peers:
            found = self.ratio(final, subject, peer) or self.ratio(screening, subject, peer)
            if found:
                estimates[peer] = found
        if verdict.own is None or not estimates:
            verdict.note = "no figure to compare"
            return verdict
        hardest = min if self.speed else max
        verdict.peer = hardest(estimates, key=lambda peer: estimates[peer].median)
        verdict.estimate = estimates.pop(verdict.peer)
        verdict.peer_value = ratios.median_of(rounds, verdict.peer, self.figure)
        if verdict.peer_value is None:
            verdict.peer_value = ratios.median_of(screening, verdict.peer, self.figure)
        verdict.others = sorted(
            estimates.items(), key=lambda item: item[1].median, reverse=not self.speed
        )
        if self.limit is not None:
            verdict.met = _within(verdict.estimate.median, self.limit, self.speed)
            if self.goal is not None:
                verdict.goal_met = _within(verdict.estimate.median, self.goal, self.speed)
        return verdict


@dataclass(frozen=True)
class Own:
    """A limit on our own figure, whatever the peers do; they are shown for comparison."""

    figure: str
    title: str
    unit: str
    limit: float | None
    speed = False
    goal = None
    only = None

    def candidates(self, screening, peers, within):
        return []

    def judge(self, screening, final, subject, peers):
        verdict = Verdict(self)
        rounds = final or screening
        verdict.estimate = ratios.estimate(ratios.values_of(rounds, subject, self.figure))
        if verdict.estimate is None:
            verdict.note = "no figure"
            return verdict
        verdict.own = verdict.estimate.median
        verdict.met = None if self.limit is None else verdict.own <= self.limit
        medians = {peer: ratios.median_of(screening, peer, self.figure) for peer in peers}
        medians = {peer: value for peer, value in medians.items() if value is not None}
        if medians:
            verdict.peer = min(medians, key=medians.get)
            verdict.peer_value = medians[verdict.peer]
        return verdict


@dataclass(frozen=True)
class Above:
    """A limit on the difference between our figure and one opponent's."""

    figure: str
    title: str
    unit: str
    limit: float
    only: str
    speed = False
    goal = None

    def candidates(self, screening, peers, within):
        return [self.only] if self.only in peers else []

    def judge(self, screening, final, subject, peers):
        verdict = Verdict(self, peer=self.only)
        rounds = final or screening
        verdict.own = ratios.median_of(rounds, subject, self.figure)
        verdict.peer_value = ratios.median_of(rounds, self.only, self.figure)
        verdict.estimate = ratios.differences(rounds, subject, self.only, self.figure)
        if verdict.estimate is None:
            verdict.note = "no figure to compare"
            return verdict
        verdict.met = verdict.estimate.median <= self.limit
        return verdict
