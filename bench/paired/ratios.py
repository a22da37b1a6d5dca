"""Paired ratios: how much one allocator differs from another, and how sure that is.

A round runs A B B A (or A B C C B A), so that a drift of the machine's speed that is steady within
the round cancels out of the ratio of geometric means. The figure is the median of the rounds'
ratios; its 95 % interval is the percentile bootstrap of that median (Efron and Tibshirani, "An
Introduction to the Bootstrap", 1993, chapter 13) with a fixed seed; beside it stands the count of
rounds on the winning side, the sign test's statistic, which needs no assumption at all.
"""

import math
import random
import statistics
from dataclasses import dataclass

RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass
class Estimate:
    """A median with its bootstrap interval and what it was made of."""

    median: float
    low: float
    high: float
    values: list

    def wins(self, better_above, than=1.0):
        """How many rounds lie on the better side of `than`."""
        if better_above:
            return sum(value > than for value in self.values)
        return sum(value < than for value in self.values)


def estimate(values):
    """None without values; an interval of no width with one."""
    values = [value for value in values if value is not None and math.isfinite(value)]
    if not values:
        return None
    generator = random.Random(12345)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    tail = (1 - CONFIDENCE) / 2
    low = medians[int(tail * RESAMPLES)]
    high = medians[min(RESAMPLES - 1, int((1 - tail) * RESAMPLES))]
    return Estimate(statistics.median(values), low, high, values)


def geometric_mean(values):
    """None if a value is missing or not positive: a ratio of such figures says nothing."""
    if not values or any(value is None or value <= 0 for value in values):
        return None
    return math.exp(sum(math.log(value) for value in values) / len(values))


def paired(rounds, first, second, figure):
    """The rounds' ratios first / second of one figure. A round: {allocator: [figures, ...]}."""
    ratios = []
    for samples in rounds:
        if first not in samples or second not in samples:
            continue
        above = geometric_mean([sample.get(figure) for sample in samples[first]])
        below = geometric_mean([sample.get(figure) for sample in samples[second]])
        if above is not None and below is not None:
            ratios.append(above / below)
    return estimate(ratios)


def differences(rounds, first, second, figure):
    """The rounds' differences first - second of one figure."""
    result = []
    for samples in rounds:
        if first not in samples or second not in samples:
            continue
        above = [sample.get(figure) for sample in samples[first]]
        below = [sample.get(figure) for sample in samples[second]]
        if None not in above and None not in below:
            result.append(statistics.mean(above) - statistics.mean(below))
    return estimate(result)


def values_of(rounds, allocator, figure):
    """All samples of one figure of one allocator."""
    return [
        sample[figure]
        for samples in rounds
        for sample in samples.get(allocator, [])
        if sample.get(figure) is not None
    ]


def median_of(rounds, allocator, figure):
    """None where the allocator has no such figure."""
    values = values_of(rounds, allocator, figure)
    return statistics.median(values) if values else None
