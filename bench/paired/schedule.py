"""Runs the rounds of one gate: screening with everyone, then A B B A with the contenders.

A round over allocators X Y Z runs X Y Z Z Y X, so that each has the same mean position and a
steady drift of the machine cancels; with two that is A B B A. Rounds in which the hypervisor took
more than STEAL_LIMIT of the machine are kept aside and run again.
"""

import random
import time
from dataclasses import dataclass, field

from . import machine
from .trial import TrialFailed

STEAL_LIMIT = 0.01
OTHERS_LIMIT = 0.05
MOST_PADDING = 2048
# Peers this close to the best of a figure, at screening, meet the subject in rounds of their own.
CONTENDER_SHARE = 0.10
MOST_CONTENDERS = 3


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
    """`notify()` is called after every round, so that nothing finished can be lost."""

    def __init__(self, runner, subject, peers, options, progress, notify):
        self.runner, self.subject, self.peers = runner, subject, peers
        self.options, self.progress, self.notify = options, progress, notify
        self.random = random.Random(options.seed)

    def run(self, gate, run):
        everyone = [self.subject, *self.peers]
        rounds = min(self.options.rounds, gate.most_rounds)
        plan = rounds if gate.all_in_every_round else self.options.screening
        self.progress.plan(gate, plan * 2 * len(everyone), "all peers")
        self._rounds(gate, run, "screening", everyone, plan)
        if not gate.all_in_every_round:
            contenders = self._contenders(gate, run)
            self.progress.plan(gate, rounds * 4 * len(contenders), "A B B A")
            for number in range(rounds):
                for peer in contenders:
                    self._rounds(gate, run, "final", [self.subject, peer], 1, number)
        run.complete = True
        self.notify()

    def _contenders(self, gate, run):
        names = [p.name for p in self.peers if p.name not in run.failed]
        wanted = []
        for check in gate.checks:
            close = check.candidates(run.kept("screening"), names, CONTENDER_SHARE)
            wanted += [name for name in close[:MOST_CONTENDERS] if name not in wanted]
        return [peer for peer in self.peers if peer.name in wanted]

    def _rounds(self, gate, run, phase, allocators, count, first=0):
        retries = count
        done = 0
        while done < count:
            allocators = [a for a in allocators if a.name not in run.failed]
            if len(allocators) < 2 and self.peers:
                return
            result = self._round(gate, run, phase, allocators, first + done)
            result.kept = result.steal <= STEAL_LIMIT or retries == 0
            run.rounds.append(result)
            self.notify()
            if result.kept:
                done += 1
            else:
                retries -= 1
                self.progress.discarded(result.steal)

    def _round(self, gate, run, phase, allocators, number):
        order = allocators if number % 2 == 0 else [allocators[0], *reversed(allocators[1:])]
        sequence = [*order, *reversed(order)]
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

    def _sample(self, gate, run, allocator, padding):
        figures = {}
        began = time.monotonic()
        try:
            for step in gate.steps:
                outcome = self.runner.run(step.case, allocator, padding)
                from_step = {**extract_watch(outcome, step), **step.read(outcome)}
                figures.update({step.prefix + key: value for key, value in from_step.items()})
            if gate.derive:
                figures.update(gate.derive(figures))
        except TrialFailed as error:
            run.failed[allocator.name] = str(error)
            self.progress.failed(allocator.name, str(error))
            return None
        self.progress.tick(allocator.name, time.monotonic() - began)
        return figures


def extract_watch(outcome, step):
    """The launcher's figures, for programs that it watched."""
    from . import extract

    return {} if step.case.repeat else extract.watch(outcome)
