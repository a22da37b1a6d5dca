"""From a workload's JSON lines to the figures that the gates judge.

Every function takes an Outcome and returns {figure: number}. A figure is named so that lower is
better: seconds, bytes, ratios. Memory is counted above the workload's own start (its tables are
mapped and touched by then), as the overhead in its lines is.
"""

import statistics

from .trial import TrialFailed


def _need(lines, what):
    if not lines:
        raise TrialFailed(f"printed no checkpoint of {what}")
    return lines


def _baseline(outcome):
    return outcome.start["baseline_resident_bytes"]


def _seconds(lines):
    return sum(line["seconds"] for line in lines)


def watch(outcome):
    """What the launcher measured of any workload, for the record and every table's memory part."""
    keys = (
        "seconds",
        "user_seconds",
        "system_seconds",
        "minor_faults",
        "rss_peak",
        "rss_average",
        "rss_end",
        "lazyfree_peak",
        "huge_peak",
        "voluntary_switches",
    )
    return {f"process_{key}": outcome.watch[key] for key in keys if key in outcome.watch}


def lfh(outcome):
    lines = _need(outcome.series("iterations"), "iterations")
    return {
        "seconds": _seconds(lines),
        "overhead": statistics.mean(line["overhead"] for line in lines[-3:]),
        "peak": outcome.end["peak_resident_bytes"] - _baseline(outcome),
        "faults": lines[-1]["minor_faults"],
    }


def rounds(outcome, series):
    """Seconds in all, and how the last round compares with the second (the first warms up)."""
    lines = _need(outcome.series(series), series)
    figures = {
        "seconds": _seconds(lines),
        "peak": outcome.end["peak_resident_bytes"] - _baseline(outcome),
        "faults": lines[-1]["minor_faults"],
        "resident_after": lines[-1]["resident_bytes"] - _baseline(outcome),
    }
    if len(lines) > 2:
        figures["last_over_second"] = lines[-1]["seconds"] / lines[1]["seconds"]
        figures["slope"] = slope([line["seconds"] for line in lines[1:]])
    return figures


def slope(seconds):
    """Change over the whole run as a share of the mean: least squares, robust enough for rounds."""
    count, mean = len(seconds), statistics.mean(seconds)
    if count < 2 or mean <= 0:
        return None
    middle = (count - 1) / 2
    covariance = sum((i - middle) * (value - mean) for i, value in enumerate(seconds))
    variance = sum((i - middle) ** 2 for i in range(count))
    return covariance / variance * (count - 1) / mean


def tokens(outcome):
    figures = rounds(outcome, "runs")
    trimmed = _need(outcome.series("after"), "after")[-1]
    figures["trimmed"] = trimmed["resident_bytes"] - _baseline(outcome)
    return figures


def queue(outcome):
    """One container and one test a process: every series except `after` is its rounds."""
    lines = [line for line in outcome.checkpoints if line.get("series") != "after"]
    lines = _need(lines, "rounds")
    return {
        "seconds": _seconds(lines),
        "peak": max(line["peak_resident_bytes"] for line in lines) - _baseline(outcome),
        "slope": slope([line["seconds"] for line in lines[1:]]),
        "resident_after": lines[-1]["resident_bytes"] - _baseline(outcome),
        "trimmed": outcome.series("after")[-1]["resident_bytes"] - _baseline(outcome),
    }


def handoff(outcome):
    figures = {}
    for series, prefix in (("1 to 1", "one"), ("N to N", "many")):
        lines = outcome.series(series)
        if not lines:
            continue  # N is the number of cores, which may be one
        figures[f"{prefix}_seconds"] = _seconds(lines)
        peak = max(line["peak_resident_bytes"] for line in lines) - _baseline(outcome)
        figures[f"{prefix}_peak_over_live"] = peak - lines[-1]["most_live_bytes"]
    _need(figures, "1 to 1")
    return figures


def phase(outcome):
    lines = _need(outcome.series("phase"), "phase")
    steps = {line["step"]: line for line in lines}
    working = [line for line in lines if line["step"] in ("fill", "thin", "refill", "free")]
    figures = {"seconds": _seconds(working), "peak_ratio": outcome.end["peak_ratio"]}
    for name, key in (
        ("idle", "idle"),
        ("compact", "compacted"),
        ("free", "freed"),
        ("idle-empty", "idle_empty"),
        ("compact-empty", "trimmed"),
    ):
        if name in steps:
            figures[key] = steps[name]["resident_bytes"] - _baseline(outcome)
    if "compact" in steps:
        figures["compact_seconds"] = steps["compact"]["seconds"]
    return figures


def sizes(outcome):
    """For each size: ns a block once warm, and the last round over the second. A size's series is
    its name. Alternating sizes share a series and are distinguished by their size."""
    by_size = {}
    for line in outcome.checkpoints:
        if line["series"] != "after":
            by_size.setdefault(line["size"], []).append(line["ns_per_block"])
    _need(by_size, "any size")
    figures, warm = {}, []
    for size, costs in by_size.items():
        figures[f"ns.{size}"] = statistics.median(costs[1:] or costs)
        warm.append(figures[f"ns.{size}"])
        if len(costs) > 2:
            figures[f"ageing.{size}"] = costs[-1] / costs[1]
    figures["mean_ns"] = statistics.geometric_mean(warm)
    for line in outcome.series("after"):
        figures[f"after_{line['step']}"] = line["resident_bytes"] - _baseline(outcome)
    return figures


def startup(outcome):
    return {
        "seconds": statistics.median(outcome.watch["runs"]),
        "resident": outcome.watch["rss_at_exit"] or outcome.watch["rss_peak"],
        "faults": outcome.watch["minor_faults"],
    }


def micro(outcome):
    """Every case's best repetition: noise within a process only adds time (arXiv 1608.04295)."""
    figures = {}
    for line in _need(outcome.checkpoints, "any case"):
        key = f"{line['series']} {line['x']}"
        nanoseconds = line["seconds"] / line["operations"] * 1e9
        figures[key] = min(figures.get(key, nanoseconds), nanoseconds)
    return figures


def private_heaps(outcome):
    """The figures of micro, and what 10,000 small heaps keep resident: MiB above the start."""
    figures = micro(outcome)
    for line in outcome.checkpoints:
        if line["series"].endswith("-many"):
            key = f"{line['series']} MiB"
            resident = (line["resident_bytes"] - _baseline(outcome)) / 2**20
            figures[key] = min(figures.get(key, resident), resident)
    return figures


def program(outcome):
    """For programs of other projects: what the system accounts to the program and its children."""
    watched = outcome.watch
    return {
        "cpu": watched["user_seconds"] + watched["system_seconds"],
        "wall": watched["seconds"],
        "peak": watched["rss_peak"],
        "faults": watched["minor_faults"],
    }


def shape(outcome):
    figures = rounds(outcome, "rounds")
    after = outcome.series("after")
    if after:
        figures["freed"] = after[0]["resident_bytes"] - _baseline(outcome)
        figures["trimmed"] = after[-1]["resident_bytes"] - _baseline(outcome)
    return figures
