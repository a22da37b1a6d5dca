"""Tables from a results file: gate by gate, and the suites case by case."""

import statistics

from . import ratios
from .checks import Versus
from .schedule import OTHERS_LIMIT, TOO_LONG

MIB = 1 << 20
WIDTHS = (34, 11, 25, 25, 11, 20)


def _value(value, unit):
    if value is None:
        return "-"
    if unit == "MiB":
        return f"{value / MIB:.1f} MiB"
    if unit == "%":
        return f"{value * 100:.1f} %"
    if unit == "ms":
        return f"{value * 1e3:.3f} ms"
    if unit == "ns":
        return f"{value:.1f} ns"
    if unit == "count":
        return f"{value:.0f}"
    if unit == "s":
        return f"{value:.3f} s"
    return f"{value:.3f}"


def _row(cells):
    return "  ".join(str(cell).ljust(width) for cell, width in zip(cells, WIDTHS)).rstrip()


def _limit(check):
    kind = type(check).__name__
    if check.limit is None:
        return ""
    if kind == "Versus":
        return f"{'>=' if check.speed else '<='} {check.limit:g}x"
    if kind == "Above":
        return f"<= +{_value(check.limit, check.unit)}"
    return f"<= {_value(check.limit, check.unit)}"


def _judgement(verdict):
    check = verdict.check
    if verdict.met is None:
        return verdict.note or "-"
    estimate = verdict.estimate
    open_question = ""
    if isinstance(check, Versus) and estimate and estimate.low < check.limit < estimate.high:
        open_question = "?"  # the interval contains the limit, so more rounds would decide
    text = ("met" if verdict.met else "NOT MET") + open_question
    if check.goal is not None:
        text += f", {check.goal:g}x {'met' if verdict.goal_met else 'not'}"
    return f"{text} {verdict.note}".rstrip()


def _ratio(verdict):
    check, estimate = verdict.check, verdict.estimate
    if not estimate:
        return ""
    if isinstance(check, Versus):
        wins = estimate.wins(check.speed)
        return (
            f"{estimate.median:.3f} [{estimate.low:.3f} {estimate.high:.3f}] "
            f"{wins}/{len(estimate.values)}"
        )
    unit = check.unit
    return f"[{_value(estimate.low, unit)}, {_value(estimate.high, unit)}]"


def gate(run, peers):
    """(lines, verdicts) of one gate."""
    screening, final = run.kept("screening"), run.kept("final")
    present = [peer for peer in peers if peer not in run.failed]
    verdicts = [check.judge(screening, final, run.subject, present) for check in run.gate.checks]
    lines = [f"{run.gate.name}: {run.gate.title}{'' if run.complete else ' (unfinished)'}"]
    lines.append(
        "  " + _row(["", run.subject, "best peer", "ratio [95 %] rounds won", "limit", "verdict"])
    )
    for verdict in verdicts:
        check = verdict.check
        peer = f"{verdict.peer} {_value(verdict.peer_value, check.unit)}" if verdict.peer else "-"
        cells = [check.title, _value(verdict.own, check.unit), peer, _ratio(verdict)]
        lines.append("  " + _row([*cells, _limit(check), _judgement(verdict)]))
    lines += [f"  {name} failed: {reason}" for name, reason in run.failed.items()]
    lines += _too_long(run, present)
    lines += _quiet(run)
    return lines, verdicts


def _too_long(run, peers):
    found = []
    for step in run.gate.steps:
        name = f"{step.prefix}{TOO_LONG}"
        over = [p for p in peers if ratios.median_of(run.kept("screening"), p, name) is not None]
        if over:
            found.append(
                f"  {step.prefix[:-1]}: left out, past {step.case.timeout} s: {', '.join(over)}"
            )
    return found


def markdown(run, peers):
    """(lines, verdicts) of one gate as a table for a document."""
    screening, final = run.kept("screening"), run.kept("final")
    present = [peer for peer in peers if peer not in run.failed]
    verdicts = [check.judge(screening, final, run.subject, present) for check in run.gate.checks]
    lines = [f"### {run.gate.name}: {run.gate.title}", ""]
    lines.append("| | Loam | best peer | ratio [95 %], rounds won | limit | |")
    lines.append("|---|---|---|---|---|---|")
    for verdict in verdicts:
        check = verdict.check
        peer = f"{verdict.peer} {_value(verdict.peer_value, check.unit)}" if verdict.peer else "-"
        judged = _judgement(verdict).replace("NOT MET", "**not met**")
        cells = [check.title.strip(), _value(verdict.own, check.unit), peer, _ratio(verdict)]
        lines.append("| " + " | ".join([*cells, _limit(check), judged]) + " |")
    notes = [f"{name} failed: {reason}" for name, reason in run.failed.items()]
    notes += [line.strip() for line in _too_long(run, present) + _quiet(run)]
    lines += ["", *(f"- {note}" for note in notes)]
    return [*lines, ""] if notes else lines, verdicts


def versus(run, peers, figure):
    """The verdict on one figure of a suite."""
    check = next(check for check in run.gate.checks if check.figure == figure)
    present = [peer for peer in peers if peer not in run.failed]
    return check.judge(run.kept("screening"), run.kept("final"), run.subject, present)


def ratio_words(verdict):
    found = verdict.estimate
    return f"{found.median:.2f} [{found.low:.2f} {found.high:.2f}]"


def is_disturbed(run):
    kept = [r.others for r in run.rounds if r.kept]
    return bool(kept) and statistics.median(kept) > OTHERS_LIMIT


def _quiet(run):
    kept = [r for r in run.rounds if r.kept]
    lines = []
    dropped = len(run.rounds) - len(kept)
    if dropped:
        lines.append(f"  {dropped} rounds discarded: the hypervisor took the processor meanwhile")
    if is_disturbed(run):
        others = statistics.median(r.others for r in kept)
        lines.append(
            f"  DISTURBED: others used {others:.0%} of the machine; do not trust these times"
        )
    return lines


def everyone(run, peers):
    """All allocators' medians of a gate's figures at screening."""
    screening = run.kept("screening")
    shown = [check for check in run.gate.checks if "*" not in check.figure]
    lines = [f"{run.gate.name}, everyone (medians of all peers' rounds)"]
    lines += [f"  {i + 1}: {check.title}" for i, check in enumerate(shown)]
    lines.append("  " + " " * 24 + "".join(f"{i + 1:>13}" for i in range(len(shown))))
    for name in [run.subject, *peers]:
        values = [ratios.median_of(screening, name, check.figure) for check in shown]
        if any(value is not None for value in values):
            cells = "".join(f"{_value(v, c.unit):>13}" for v, c in zip(values, shown))
            lines.append(f"  {name:<24}{cells}")
    for step in run.gate.steps:
        if not step.case.repeat:
            lines += _process(run, step, peers)
    return lines


WATCHED = (
    ("RSS peak", "rss_peak", "MiB"),
    ("average", "rss_average", "MiB"),
    ("last", "rss_end", "MiB"),
    ("LazyFree", "lazyfree_peak", "MiB"),
    ("huge", "huge_peak", "MiB"),
    ("faults", "minor_faults", "count"),
    ("system", "system_seconds", "s"),
)


def _process(run, step, peers):
    """What the launcher measured from outside. These figures include the workload's own tables."""
    program = " ".join(map(str, [step.case.program.name, *step.case.arguments]))
    lines = [f"  process {program}"]
    lines.append("  " + " " * 24 + "".join(f"{title:>13}" for title, _, _ in WATCHED))
    for name in [run.subject, *peers]:
        keys = [f"{step.prefix}process_{key}" for _, key, _ in WATCHED]
        values = [ratios.median_of(run.kept("screening"), name, key) for key in keys]
        if any(value is not None for value in values):
            units = [unit for _, _, unit in WATCHED]
            cells = "".join(f"{_value(v, unit):>13}" for v, unit in zip(values, units))
            lines.append(f"  {name:<24}{cells}")
    return lines


def cases(run, peers):
    """A suite without checks: a row for each case, compared with the best peer of that case."""
    rounds = run.kept("screening")
    names = [
        name
        for name in (rounds[0].get(run.subject, [{}])[0] if rounds else {})
        if not name.startswith("process_")
    ]
    lines = [f"{run.gate.name}: {run.gate.title}{'' if run.complete else ' (unfinished)'}"]
    lines.append("  " + _row(["case", run.subject, "best peer", "speed [95 %] rounds won", "", ""]))
    against = {peer: [] for peer in peers}
    best_ratios = []
    for name in names:
        verdict = Versus(name, name, "ns", None, speed=True).judge(rounds, [], run.subject, peers)
        if not verdict.estimate:
            continue
        best_ratios.append(verdict.estimate.median)
        for peer in peers:
            found = ratios.paired(rounds, peer, run.subject, name)
            if found:
                against[peer].append(found.median)
        peer = f"{verdict.peer} {_value(verdict.peer_value, 'ns')}"
        mark = "" if verdict.estimate.median >= 1 else "slower"
        cells = [name, _value(verdict.own, "ns"), peer, _ratio(verdict), "", mark]
        lines.append("  " + _row(cells))
    if best_ratios:
        ahead = sum(ratio >= 1 for ratio in best_ratios)
        mean = statistics.geometric_mean(best_ratios)
        lines.append(
            f"  ahead of every peer in {ahead} of {len(best_ratios)} cases; geometric mean of the "
            f"speed against each case's best peer {mean:.3f}"
        )
        for peer, values in sorted(against.items(), key=lambda item: item[0]):
            if values:
                lines.append(f"    against {peer:<18} {statistics.geometric_mean(values):.3f}")
    lines += [f"  {name} failed: {reason}" for name, reason in run.failed.items()]
    return lines + _quiet(run)
