"""Committed results: one row a figure and allocator, so that a diff of two results can be read.

Raw samples stay out of git. A summary is a CSV file with a header line; figures are in base units
(seconds, bytes, counts), to four significant digits. Columns of `bench/run`'s results:

  gate, figure, allocator
  samples, median, low, high    of all samples; low and high are the median's 95 % interval
  rounds, ratio, from, to       paired (ratios.py says how): in how many rounds, the allocator's
                                figure over the subject's, and the ratio's 95 % interval

Empty cells mean that there is no such figure, or no pair. Other measurements have columns of their
own; the first ones name the row.
"""

import csv
import io
import statistics

from . import ratios, sweeps

# The launcher's figures that a summary has beside a trial's own, if the gate names none.
LAUNCHER = ("process_seconds", "process_rss_peak", "process_minor_faults")


def number(value):
    """Four significant digits. Whole numbers below 10^15 are unchanged if four digits express
    them."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    short = float(f"{value:.4g}")
    return str(int(short)) if short == int(short) and abs(short) < 1e15 else f"{short:.4g}"


def _figures(gate, rounds):
    """The figures that the gate judges. If it judges none, all of the program's own figures."""
    judged = [check.figure for check in gate.checks] if gate else []
    found = {name for samples in rounds for trials in samples.values() for trial in trials
             for name in trial}
    if judged:
        return [name for name in dict.fromkeys(judged) if name in found]
    own = sorted(name for name in found if not name.startswith("process_"))
    return own + [name for name in LAUNCHER if name in found]


def _paired(run, allocator, figure):
    for phase in ("final", "screening"):
        found = ratios.paired(run.kept(phase), allocator, run.subject, figure)
        if found and allocator != run.subject:
            return [len(found.values), found.median, found.low, found.high]
    return [None, None, None, None]


def bench(runs):
    """Rows of a file of bench/run. `runs`: the file's gates as schedule.Run."""
    yield ["gate", "figure", "allocator", "samples", "median", "low", "high", "rounds", "ratio",
           "from", "to"]
    for run in runs:
        rounds = run.kept("screening") + run.kept("final")
        allocators = list(dict.fromkeys(name for samples in rounds for name in samples))
        for figure in _figures(run.gate, rounds):
            for allocator in allocators:
                values = ratios.values_of(rounds, allocator, figure)
                found = ratios.estimate(values)
                if found:
                    cells = [len(values), found.median, found.low, found.high]
                    cells += _paired(run, allocator, figure)
                    yield [run.gate.name, figure, allocator, *map(number, cells)]
        for name, reason in run.failed.items():
            yield [run.gate.name, f"failed: {reason}", name, *[""] * 8]


def scaling(data):
    """Pairs a second, and waits and acquisitions a million pairs."""
    yield ["pattern", "threads", "allocator", "runs", "pairs_per_second", "waits", "acquisitions"]
    for name, entry in data["allocators"].items():
        for pattern, by_threads in entry.get("patterns", {}).items():
            for threads, found in by_threads.items():
                middle = [
                    statistics.median(found[key]) if found.get(key) else None
                    for key in ("speed", "waits", "acquisitions")
                ]
                yield [pattern, threads, name, len(found["speed"]), *map(number, middle)]


def coherence(data):
    """Counts a pair of malloc and free, by the model. `program` columns count the program's own
    accesses to its blocks."""
    keys = ("lines", "bytes", "program_lines", "sections", "collisions", "changes",
            "failed_changes", "waits", "accesses")
    yield ["workload", "threads", "allocator", *keys]
    for name, entry in data["allocators"].items():
        for workload, by_threads in entry["workloads"].items():
            for threads, found in by_threads.items():
                yield [workload, threads, name, *(number(found[key]) for key in keys)]


def ageing(data):
    """Growth over all rounds, with its 95 % interval."""
    yield ["workload", "series", "figure", "rounds", "mean", "growth", "low", "high", "grows"]
    for name, entry in data["workloads"].items():
        for row in entry["figures"]:
            cells = (row[key] for key in ("rounds", "mean", "slope", "low", "high", "grows"))
            yield [name, row["series"], row["figure"], *map(number, cells)]


def frontier(data):
    """Operations a second of processor time, and resident bytes beyond the live ones as a share, of
    the averages and the peaks."""
    yield ["point", "allocator", "rounds", "speed", "overhead", "peak_overhead", "minor_faults"]
    for point, entry in data["points"].items():
        for name, heap in data["allocators"].items():
            speeds = ratios.values_of(entry["rounds"], name, "speed")
            figures = (ratios.median_of(entry["rounds"], name, key)
                       for key in ("speed", "average", "peak", "minor_faults"))
            if speeds:
                yield [point, name, len(speeds), *map(number, figures)]
            elif point in heap.get("failed", {}):
                yield [point, name, f"failed: {heap['failed'][point]}", *[""] * 4]


def sweep(data):
    """Rounding, and resident bytes beyond the requested ones, as shares; faults a touched page."""
    names = None
    for name, entry in data["allocators"].items():
        if "rows" not in entry:
            continue
        found = sweeps.summary(sweeps.unpack(entry))
        if names is None:
            names = list(found)
            yield ["allocator", *names]
        yield [name, *(found[key] if key.endswith("_size") else number(found[key])
                       for key in names)]


def origins(by_kind):
    """Where each summary comes from. `by_kind`: {summary's name: data of the results file}."""
    yield ["results", "started", "commit", "changed", "cpu", "cores", "memory", "kernel",
           "c_library"]
    for kind, data in sorted(by_kind.items()):
        machine, sources = data["machine"], data["sources"]
        described = [machine[key]
                     for key in ("cpu", "cores", "memory_bytes", "kernel", "c_library")]
        yield [kind, data["started"], sources["commit"], number(bool(sources["dirty"])), *described]


def allocators(by_kind):
    """Which build of which allocator each summary is about."""
    yield ["results", "allocator", "version", "source", "sha256"]
    for kind, data in sorted(by_kind.items()):
        for name, entry in data["allocators"].items():
            yield [kind, name, entry["version"], entry["source"], (entry["sha256"] or "")[:16]]
        for name, reason in data.get("absent", {}).items():
            yield [kind, name, "", f"absent: {reason}", ""]


def text(rows):
    """The rows as a CSV file has them."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def merge(old, rows):
    """A file of origins: the old rows, with those of new results replaced."""
    rows = list(rows)
    fresh = {row[0] for row in rows[1:]}
    kept = [row for row in csv.reader(io.StringIO(old)) if row
            and row[0] not in fresh | {"results"}]
    return text([rows[0], *sorted([*kept, *rows[1:]], key=lambda row: row[0])])
