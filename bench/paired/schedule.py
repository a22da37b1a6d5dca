"""Runs the rounds of one gate: screening with all allocators, then A B B A with the contenders.

A round over allocators X Y Z runs X Y Z Z Y X, so that each has the same mean position and a
steady drift of the machine cancels; with two that is A B B A. Rounds in which the hypervisor took
more than STEAL_LIMIT of the machine are kept aside and run again.

Within a time budget all allocators run once (twice if that is cheap). Then the contenders run
together, in as many mirrored rounds as the rest of the gate's share of the budget allows. In a
suite all allocators run in those rounds.
"""

import math
import random
import time
from dataclasses import dataclass, field

from . import machine, ratios
from .checks import Versus
from .trial import TrialFailed, TrialTooLong

STEAL_LIMIT = 0.01
OTHERS_LIMIT = 0.05
MOST_PADDING = 2048
# Peers this close to the best of a figure at screening run with the subject in rounds of their own.
CONTENDER_SHARE = 0.10
MOST_CONTENDERS = 3
# Within a budget: the most contenders of all checks together, the least rounds for a verdict at any
# cost, and the most rounds.
MOST_IN_BUDGET, LEAST_ROUNDS, MOST_ROUNDS = 4, 3, 15
# How many times peers that would decide a demand by screening alone get rounds of their own.
MOST_APPEALS = 3
SCREENING_SHARE = 0.35  # a second screening only if both fit into this share of the gate's time
TRIAL_SECONDS = "process_trial_seconds"
TOO_LONG = "process_too_long"  # a step's limit in seconds, which the allocator ran past


@dataclass
class Round:
    """One kept or discarded round: every sample, and how quiet the machine was."""

    phase: str
    order: list
    samples: dict
    steal: float
    others: float
    kept: bool

    def as_json(self):
        return {
            "phase": self.phase,
            "order": self.order,
            "samples": self.samples,
            "steal": round(self.steal, 5),
            "others": round(self.others, 5),
            "kept": self.kept,
        }


@dataclass
class Run:
    """Everything measured of one gate so far."""

    gate: object
    subject: str
    rounds: list = field(default_factory=list)
    failed: dict = field(default_factory=dict)  # allocator -> reason
    complete: bool = False

    def kept(self, phase):
        return [r.samples for r in self.rounds if r.kept and r.phase == phase]


class Scheduler:
    """`notify()` is called after every round, so that no finished round is lost."""

    def __init__(self, runner, subject, peers, options, progress, notify):
        self.runner, self.subject, self.peers = runner, subject, peers
        self.options, self.progress, self.notify = options, progress, notify
        self.random = random.Random(options.seed)

    def run(self, gate, run):
        """Continues after the rounds that `run` already has."""
        everyone = [self.subject, *self.peers]
        began = time.monotonic()
        try:
            if gate.prepare:
                gate.prepare(self.runner)
        except TrialFailed as error:
            run.failed[gate.name] = str(error)
            self.progress.failed(gate.name, str(error))
            run.complete = True
            self.notify()
            return
        if gate.counted:
            self._count(gate, run, everyone)
        elif self.options.seconds:
            left = self.options.seconds[gate.name] - (time.monotonic() - began)
            self._within(left, gate, run, everyone)
        else:
            self._fixed(gate, run, everyone)
        run.complete = True
        self.notify()

    def _fixed(self, gate, run, everyone):
        rounds = min(self.options.rounds, gate.most_rounds)
        plan = rounds if gate.all_in_every_round else self.options.screening
        self.progress.plan(gate, plan * 2 * len(everyone), "all peers")
        self._rounds(gate, run, "screening", everyone, plan)
        done = len(run.kept("final"))
        if not gate.all_in_every_round:
            contenders = self._contenders(gate, run)
            self.progress.plan(gate, rounds * 4 * len(contenders), "A B B A")
            for number in range(rounds):
                for peer in contenders:
                    if done > 0:
                        done -= 1  # an earlier run has measured it
                        continue
                    self._rounds(gate, run, "final", [self.subject, peer], 1, number, fresh=True)

    def _within(self, seconds, gate, run, everyone):
        def took(names):
            samples = run.kept("screening") + run.kept("final")
            costs = [ratios.median_of(samples, name, TRIAL_SECONDS) for name in names]
            return sum(cost for cost in costs if cost is not None)

        names = [allocator.name for allocator in everyone]
        began = time.monotonic()
        self.progress.plan(gate, len(everyone), "all peers once")
        self._rounds(gate, run, "screening", everyone, 1, mirrored=False)
        once = took(names)
        if gate.all_in_every_round:
            left = seconds - max(time.monotonic() - began, once)
            room = math.floor(left / (2 * once)) if once > 0 else MOST_ROUNDS
            rounds = max(0, min(room, MOST_ROUNDS))
            self.progress.plan(gate, rounds * 2 * len(everyone), "all peers")
            self._rounds(gate, run, "screening", everyone, 1 + rounds)
            return
        if 2 * once <= SCREENING_SHARE * seconds:
            self._rounds(gate, run, "screening", everyone, 2, mirrored=False)
        contenders = self._contenders(gate, run, MOST_IN_BUDGET)
        if contenders:
            self._meet(seconds, gate, run, contenders, began, once, took)
        for _ in range(MOST_APPEALS):
            deciding = self._decided_by_screening(gate, run)
            if not deciding:
                return
            self.progress.plan(gate, LEAST_ROUNDS * 2 * (1 + len(deciding)),
                               "A B B A with the deciding peers")
            self._rounds(gate, run, "final", [self.subject, *deciding], LEAST_ROUNDS, fresh=True)

    def _meet(self, seconds, gate, run, contenders, began, once, took):
        each = 2 * took([self.subject.name, *(peer.name for peer in contenders)])
        left = seconds - max(time.monotonic() - began, once)
        room = math.floor(left / each) if each > 0 else MOST_ROUNDS
        rounds = max(LEAST_ROUNDS, min(room, MOST_ROUNDS))
        self.progress.plan(gate, rounds * 2 * (1 + len(contenders)), "A B B A")
        self._rounds(gate, run, "final", [self.subject, *contenders], rounds)

    def _decided_by_screening(self, gate, run):
        """Peers that ran in screening alone and make a check fail. The worst of a dozen peers' one
        or two rounds is most likely the unluckiest."""
        screening, final = run.kept("screening"), run.kept("final")
        names = [p.name for p in self.peers if p.name not in run.failed]
        met = {name for samples in final for name in samples}
        deciding = set()
        for check in gate.checks:
            verdict = check.judge(screening, final, self.subject.name, names)
            if verdict.met is False and verdict.estimate and isinstance(check, Versus):
                deciding.add(verdict.peer)
        return [peer for peer in self.peers if peer.name in deciding - met]

    def _count(self, gate, run, everyone):
        """One round, because counts are the same every time and no other program disturbs them."""
        samples = {}
        self.progress.plan(gate, len(everyone), "counted once")
        for allocator in everyone:
            if not run.kept("screening"):
                sample = self._sample(gate, run, allocator, 0)
                if sample is not None:
                    samples[allocator.name] = [sample]
        if samples:
            order = [allocator.name for allocator in everyone]
            run.rounds.append(Round("screening", order, samples, 0.0, 0.0, True))

    def _contenders(self, gate, run, most=None):
        """The best peers of each check. The very best of every check come first."""
        names = [p.name for p in self.peers if p.name not in run.failed]
        lists = [
            check.candidates(run.kept("screening"), names, CONTENDER_SHARE)[:MOST_CONTENDERS]
            for check in gate.checks
            if most is None or check.limit is not None
        ]
        if most is not None:
            # Memory hardly differs from run to run, so screening decides it. Rounds are for time.
            timed = [c for c in gate.checks if c.limit is not None]
            lists = [found for check, found in zip(timed, lists) if check.speed or check.only]
        wanted = []
        for place in range(MOST_CONTENDERS):
            for close in lists:
                if place < len(close) and close[place] not in wanted:
                    wanted.append(close[place])
        wanted = wanted[:most]
        return [peer for peer in self.peers if peer.name in wanted]

    def _rounds(self, gate, run, phase, allocators, count, first=0, mirrored=True, fresh=False):
        """Runs the missing rounds of `count`; all of them if `fresh`."""
        retries = count
        done = 0 if fresh else len(run.kept(phase))
        while done < count:
            allocators = [a for a in allocators if a.name not in run.failed]
            if len(allocators) < 2 and self.peers:
                return
            result = self._round(gate, run, phase, allocators, first + done, mirrored)
            result.kept = result.steal <= STEAL_LIMIT or retries == 0
            run.rounds.append(result)
            self.notify()
            if result.kept:
                done += 1
            else:
                retries -= 1
                self.progress.discarded(result.steal)

    def _round(self, gate, run, phase, allocators, number, mirrored):
        order = allocators if number % 2 == 0 else [allocators[0], *reversed(allocators[1:])]
        sequence = [*order, *reversed(order)]
        if not mirrored:
            sequence = allocators if number % 2 == 0 else list(reversed(allocators))
        padding = self.random.randrange(MOST_PADDING)
        quiet = machine.Quiet.start()
        samples = {}
        for allocator in sequence:
            if allocator.name in run.failed:
                continue
            sample = self._sample(gate, run, allocator, padding)
            if sample is not None:
                samples.setdefault(allocator.name, []).append(sample)
        # An allocator that failed half-way has an unpaired sample.
        samples = {name: found for name, found in samples.items() if name not in run.failed}
        state = quiet.end()
        return Round(
            phase, [a.name for a in sequence], samples, state["steal"], state["others"], True
        )

    @staticmethod
    def _known(run, allocator):
        """Names of figures that an earlier sample of the allocator has."""
        for kept in run.rounds:
            for sample in kept.samples.get(allocator.name, []):
                return sample.keys()
        return ()

    def _sample(self, gate, run, allocator, padding):
        figures = {}
        began = time.monotonic()
        try:
            if gate.counted:
                figures.update(gate.counted(allocator))
            for step in gate.steps:
                if step.only_subject and allocator.name != self.subject.name:
                    continue
                if f"{step.prefix}{TOO_LONG}" in self._known(run, allocator):
                    figures[f"{step.prefix}{TOO_LONG}"] = step.case.timeout
                    continue
                try:
                    outcome = self.runner.run(step.case, allocator, padding)
                except TrialTooLong as error:
                    if not step.may_run_long or allocator.name == self.subject.name:
                        raise
                    figures[f"{step.prefix}{TOO_LONG}"] = step.case.timeout
                    self.progress.failed(allocator.name, f"{step.prefix[:-1]}: {error}")
                    continue
                from_step = {**extract_watch(outcome, step), **step.read(outcome)}
                figures.update({step.prefix + key: value for key, value in from_step.items()})
            if gate.derive:
                figures.update(gate.derive(figures))
        except TrialFailed as error:
            run.failed[allocator.name] = str(error)
            self.progress.failed(allocator.name, str(error))
            return None
        figures[TRIAL_SECONDS] = time.monotonic() - began
        self.progress.tick(allocator.name, figures[TRIAL_SECONDS])
        return figures


def extract_watch(outcome, step):
    """The launcher's figures, for programs that it watched."""
    from . import extract

    return {} if step.case.repeat else extract.watch(outcome)
