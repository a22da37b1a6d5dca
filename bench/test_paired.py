"""Tests of the benchmark's arithmetic and schedule, with a fake runner in place of programs."""

import argparse
import dataclasses
import importlib.machinery
import importlib.util
import json
import random
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from paired import (checks, curves, extract, frontier, gates, machine, programs, ratios, report,
                    results)
from paired import schedule, summaries, sweeps
from paired.allocators import Allocator
from paired.errors import SetupError, UsageError
from paired.trial import Case, Outcome, Runner, TrialFailed, TrialTooLong


def setUpModule():
    # A trial takes no time here, so one tick of the hypervisor would be most of a round.
    quiet = mock.patch.object(machine.Quiet, "end", lambda self: {"steal": 0.0, "others": 0.0})
    quiet.start()
    unittest.addModuleCleanup(quiet.stop)


def script(name):
    """A program without .py as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def rounds_of(figure, **samples):
    """Rounds from {allocator: [values of each round]}."""
    count = len(next(iter(samples.values())))
    return [
        {name: [{figure: value} for value in values[i]] for name, values in samples.items()}
        for i in range(count)
    ]


class Silent:
    def plan(self, *_):
        pass

    tick = failed = discarded = kept = plan


class FakeRunner:
    """Seconds by allocator, growing steadily with every trial, as on a machine that heats up."""

    def __init__(self, seconds, drift=0.0, crashing=()):
        self.seconds, self.drift, self.crashing, self.order = seconds, drift, crashing, []

    def run(self, case, allocator, padding):
        if allocator.name in self.crashing:
            raise TrialFailed("died of signal 11")
        self.order.append(allocator.name)
        value = self.seconds[allocator.name] + self.drift * len(self.order)
        line = {"series": "iterations", "seconds": value, "overhead": 0.2, "minor_faults": 1}
        start, end = {"baseline_resident_bytes": 0}, {"peak_resident_bytes": 10}
        return Outcome({}, start, [dict(line) for _ in range(3)], end)


def allocator(name):
    return Allocator(name, "1", "test", None)


def measured(runner, peers, rounds=3, run=None, seconds=None):
    gate = gates.Gate(
        "lfh1",
        "a gate",
        [gates.Step(Case("x", []), extract.lfh)],
        [checks.Versus("seconds", "speed", "s", 1.0, speed=True)],
    )
    run = run or schedule.Run(gate, "ours")
    seconds = {"lfh1": seconds} if seconds else None
    options = argparse.Namespace(rounds=rounds, screening=1, seed=1, seconds=seconds)
    scheduler = schedule.Scheduler(
        runner, allocator("ours"), [allocator(p) for p in peers], options, Silent(), lambda: None
    )
    scheduler.run(gate, run)
    return run


class RatioTests(unittest.TestCase):
    def test_a_steady_drift_cancels_out_of_a_b_b_a(self):
        # Sums: both run at 1.0 + drift * position; A at 0 and 3, B at 1 and 2.
        found = ratios.paired(rounds_of("s", a=[[1.0, 1.3]], b=[[1.1, 1.2]]), "a", "b", "s")
        self.assertAlmostEqual(found.median, (1.3 / 1.32) ** 0.5)
        self.assertLess(abs(found.median - 1), 0.01)

    def test_an_estimate_counts_rounds_on_the_winning_side(self):
        found = ratios.estimate([0.9, 1.1, 1.2])
        self.assertEqual((found.median, found.wins(True), found.wins(False)), (1.1, 2, 1))
        self.assertLessEqual(found.low, found.median)
        self.assertGreaterEqual(found.high, found.median)

    def test_a_figure_that_is_not_positive_gives_no_ratio(self):
        self.assertIsNone(ratios.paired(rounds_of("s", a=[[0.0, 1]], b=[[1, 1]]), "a", "b", "s"))

    def test_an_estimate_is_the_same_every_time(self):
        values = [1.0, 1.5, 0.7, 1.1]
        self.assertEqual(ratios.estimate(values), ratios.estimate(values))


class CheckTests(unittest.TestCase):
    def test_the_hardest_peer_decides(self):
        rounds = rounds_of("s", ours=[[1.0, 1.0]], slow=[[2.0, 2.0]], fast=[[0.8, 0.8]])
        check = checks.Versus("s", "speed", "s", 1.0, speed=True)
        verdict = check.judge(rounds, [], "ours", ["slow", "fast"])
        self.assertEqual((verdict.peer, verdict.met), ("fast", False))

    def test_memory_is_ours_over_theirs(self):
        rounds = rounds_of("m", ours=[[80, 80]], theirs=[[100, 100]])
        verdict = checks.Versus("m", "peak", "MiB", 1.0, goal=0.75).judge(
            rounds, [], "ours", ["theirs"]
        )
        self.assertAlmostEqual(verdict.estimate.median, 0.8)
        self.assertEqual((verdict.met, verdict.goal_met), (True, False))

    def test_contenders_are_those_near_the_best(self):
        rounds = rounds_of("s", a=[[1.0]], b=[[1.05]], c=[[2.0]])
        check = checks.Versus("s", "speed", "s", 1.0, speed=True)
        self.assertEqual(check.candidates(rounds, ["a", "b", "c"], 0.1), ["a", "b"])

    def test_a_limit_above_one_opponent_is_a_difference(self):
        rounds = rounds_of("m", ours=[[5, 5]], system=[[4, 4]])
        self.assertTrue(checks.Above("m", "m", "", 1, "system").judge(rounds, [], "ours", []).met)


class CurveTests(unittest.TestCase):
    def test_cost_may_grow_with_the_pages_touched_and_no_more(self):
        smooth = curves.Smooth.worst({512: 10, 1024: 20, 4096: 80, 8192: 80})
        self.assertLessEqual(smooth[0], 1.0)
        self.assertEqual(curves.Smooth.worst({4096: 80, 8192: 160, 16384: 160}), (2.0, 8192))
        self.assertEqual(curves.Smooth.worst({65504: 300, 65536: 100})[1], 65504)

    def test_a_size_ages_when_its_interval_lies_above_the_limit(self):
        check = curves.Steady("ageing.*", "ageing", "", 1.02)
        steady = [{"ours": [{"ageing.64": v}]} for v in (0.97, 1.01, 1.05)]
        ageing = [{"ours": [{"ageing.64": v}]} for v in (1.2, 1.21, 1.22)]
        self.assertTrue(check.judge(steady, [], "ours", []).met)
        self.assertFalse(check.judge(ageing, [], "ours", []).met)


class ScheduleTests(unittest.TestCase):
    def test_contenders_meet_the_subject_in_a_b_b_a(self):
        runner = FakeRunner({"ours": 1.0, "near": 1.0, "far": 3.0})
        run = measured(runner, ["near", "far"], rounds=1)
        self.assertEqual(runner.order[:6], ["ours", "near", "far", "far", "near", "ours"])
        self.assertEqual(runner.order[6:], ["ours", "near", "near", "ours"])
        self.assertTrue(run.complete)

    def test_drift_does_not_decide(self):
        run = measured(FakeRunner({"ours": 1.0, "near": 1.0}, drift=0.01), ["near"])
        verdict = report.gate(run, ["near"])[1][0]
        self.assertAlmostEqual(verdict.estimate.median, 1.0, places=3)

    def test_a_peer_that_crashes_is_reported_and_the_rest_goes_on(self):
        run = measured(FakeRunner({"ours": 1.0, "near": 1.1}, crashing={"bad"}), ["bad", "near"])
        self.assertEqual(run.failed, {"bad": "died of signal 11"})
        lines, verdicts = report.gate(run, ["bad", "near"])
        self.assertEqual(verdicts[0].peer, "near")
        self.assertIn("  bad failed: died of signal 11", lines)

    def test_a_budget_screens_once_and_spends_the_rest_on_mirrored_rounds(self):
        # A trial takes no time here, so there are as many rounds as allowed.
        runner = FakeRunner({"ours": 1.0, "near": 1.0, "close": 1.05, "far": 3.0})
        run = measured(runner, ["near", "close", "far"], seconds=60)
        finals = run.kept("final")
        self.assertEqual(len(finals), schedule.MOST_ROUNDS)
        self.assertTrue(all(set(samples) == {"ours", "near", "close"} for samples in finals))
        first = next(r.order for r in run.rounds if r.phase == "final")
        self.assertEqual(first, ["ours", "near", "close", "close", "near", "ours"])

    def test_who_would_decide_by_screening_alone_is_met_in_rounds(self):
        # "late" is fast once, because the machine was; "near" has rounds of its own in any case.
        class Lucky(FakeRunner):
            def run(self, case, allocator, padding):
                self.seconds["late"] = 0.5 if self.order.count("late") < 1 else 2.0
                return super().run(case, allocator, padding)

        runner = Lucky({"ours": 1.0, "near": 1.1, "late": 2.0})
        with mock.patch.object(schedule.Scheduler, "_contenders", lambda *_: [allocator("near")]):
            with mock.patch.object(schedule, "SCREENING_SHARE", 0.0):
                run = measured(runner, ["near", "late"], seconds=60)
        met = [r for r in run.rounds if r.phase == "final" and "late" in r.samples]
        self.assertEqual(len(met), schedule.LEAST_ROUNDS)
        self.assertEqual(met[0].order, ["ours", "late", "late", "ours"])
        verdict = report.gate(run, ["near", "late"])[1][0]
        self.assertEqual((verdict.peer, verdict.met), ("near", True))

    def test_an_expensive_gate_still_gets_the_rounds_that_make_a_verdict(self):
        run = measured(FakeRunner({"ours": 1.0, "near": 1.0}), ["near"], seconds=1e-9)
        self.assertEqual(len(run.kept("screening")), 1)
        self.assertEqual(len(run.kept("final")), schedule.LEAST_ROUNDS)

    def test_a_run_goes_on_from_the_rounds_it_has(self):
        for seconds in (None, 1e-9):
            whole = measured(FakeRunner({"ours": 1.0, "near": 1.0}), ["near"], seconds=seconds)
            part = schedule.Run(whole.gate, "ours", whole.rounds[:2])
            again = FakeRunner({"ours": 1.0, "near": 1.0})
            resumed = measured(again, ["near"], run=part, seconds=seconds)
            self.assertEqual(len(resumed.rounds), len(whole.rounds))
            self.assertEqual(len(again.order), 4 * (len(whole.rounds) - 2))

    def test_memory_is_judged_against_peers_that_are_no_contenders(self):
        rounds = rounds_of("m", ours=[[80]], small=[[50]], near=[[90]])
        final = rounds_of("m", ours=[[80, 80]], near=[[90, 90]])
        verdict = checks.Versus("m", "peak", "MiB", 1.0).judge(
            rounds, final, "ours", ["near", "small"]
        )
        self.assertEqual(verdict.peer, "small")

    def test_a_step_that_a_peer_runs_past_leaves_the_peer_its_other_steps(self):
        class Slow(FakeRunner):
            def run(self, case, allocator, padding):
                if case.timeout == 25 and allocator.name == "slow":
                    self.order.append("too long")
                    raise TrialTooLong("ran past its limit of 25 s")
                return super().run(case, allocator, padding)

        gate = gates.Gate(
            "sizes",
            "two steps",
            [
                gates.Step(Case("x", []), extract.lfh, "short."),
                gates.Step(Case("y", [], timeout=25), extract.lfh, "long.", may_run_long=True),
            ],
            [checks.Versus("short.seconds", "speed", "s", 1.0, speed=True)],
        )
        runner, run = Slow({"ours": 1.0, "slow": 1.0}), schedule.Run(gate, "ours")
        options = argparse.Namespace(rounds=1, screening=1, seed=1, seconds=None)
        schedule.Scheduler(
            runner, allocator("ours"), [allocator("slow")], options, Silent(), lambda: None
        ).run(gate, run)
        self.assertEqual(run.failed, {})
        lines, verdicts = report.gate(run, ["slow"])
        self.assertEqual(verdicts[0].peer, "slow")
        self.assertIn("  long: left out, past 25 s: slow", lines)
        # This is known after the first round, so later rounds do not wait for it.
        self.assertLessEqual(runner.order.count("too long"), 2)

    def test_a_stolen_round_is_run_again_and_not_counted(self):
        states = iter([0.5] + [0.0] * 100)
        stolen = mock.patch.object(
            machine.Quiet, "end", lambda self: {"steal": next(states), "others": 0.0}
        )
        with stolen:
            run = measured(FakeRunner({"ours": 1.0, "near": 1.0}), ["near"], rounds=2)
        self.assertEqual([r.kept for r in run.rounds], [False, True, True, True])
        self.assertEqual(len(run.kept("final")), 2)


class ProgramTests(unittest.TestCase):
    """With a launcher that reports the same figures every time, and programs of three lines. Their
    allocators are words in their environment."""

    LAUNCHER = """#!/bin/sh
while [ "$1" != -- ]; do
  case $1 in
    --report) report=$2 ;;
    --set) export "$2" ;;
  esac
  shift 2
done
shift
"$@"
code=$?
echo '{"seconds":2,"user_seconds":1,"system_seconds":0.5,"minor_faults":7,'\
'"rss_peak":4096}' >"$report"
exit $code
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.runner = Runner(self.file("launch", self.LAUNCHER))

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def program(self, text, **further):
        command = self.file("fake", f"#!/bin/sh\n{text}\n")
        return programs.Program(
            "fake",
            "a fake",
            (str(command),),
            "nothing",
            size=1,
            quick=1,
            share=1,
            arguments=lambda folder, size: [folder, size],
            **further,
        )

    def measured(self, program, *behaviours, seconds=None):
        gate = programs.gate(program, self.folder, False)
        run = schedule.Run(gate, "ours")
        peers = [Allocator(b, "1", "test", None, {"BEHAVIOUR": b}) for b in behaviours]
        seconds = {"fake": seconds} if seconds else None
        options = argparse.Namespace(rounds=2, screening=1, seed=1, seconds=seconds)
        schedule.Scheduler(
            self.runner, allocator("ours"), peers, options, Silent(), lambda: None
        ).run(gate, run)
        return run

    def test_figures_are_the_launchers(self):
        run = self.measured(self.program("echo right"), "fine")
        sample = run.kept("screening")[0]["ours"][0]
        figures = {key: sample[key] for key in ("cpu", "wall", "peak", "faults")}
        self.assertEqual(figures, {"cpu": 1.5, "wall": 2, "peak": 4096, "faults": 7})
        verdict = report.versus(run, ["fine"], "cpu")
        self.assertEqual((verdict.peer, verdict.estimate.median), ("fine", 1.0))

    def test_a_peer_that_crashes_or_answers_wrong_is_named_and_the_rest_goes_on(self):
        behave = """case $BEHAVIOUR in
          crash) kill -SEGV $$ ;;
          wrong) echo left ;;
          *) echo right ;;
        esac"""
        run = self.measured(self.program(behave), "crash", "wrong", "fine")
        self.assertEqual(set(run.failed), {"crash", "wrong"})
        self.assertIn("signal 11", run.failed["crash"])
        self.assertIn("'left', not 'right'", run.failed["wrong"])
        self.assertTrue(run.complete)
        lines, verdicts = report.gate(run, ["crash", "wrong", "fine"])
        self.assertEqual({verdict.peer for verdict in verdicts}, {"fine"})
        self.assertIn(f"  crash failed: {run.failed['crash']}", lines)

    def test_what_a_program_writes_is_part_of_its_answer(self):
        behave = """case $BEHAVIOUR in
          wrong) echo left >"$1/out" ;;
          lazy) ;;
          *) echo right >"$1/out" ;;
        esac"""
        # The lazy one runs after ours. What ours wrote must not count as its own.
        run = self.measured(self.program(behave, written="out"), "lazy", "wrong", "fine")
        self.assertEqual(set(run.failed), {"wrong", "lazy"})
        self.assertEqual(run.failed["lazy"], "wrote no out")

    def test_inputs_and_environment_are_the_same_for_everyone(self):
        program = self.program(
            'cat "$1/in"; echo $WORD',
            input="in",
            make=lambda generator, size: f"{generator.random()} {size}\n",
            environment={"WORD": "given"},
        )
        run = self.measured(program, "fine")
        self.assertEqual(run.failed, {})
        answer = programs.gate(program, self.folder, False)
        answer.prepare(self.runner)
        kept = answer.steps[0].read.__self__.right
        self.assertTrue(kept.startswith("0.13436424411240122 1\n"), kept)
        self.assertTrue(kept.endswith("given\n"), kept)

    def test_a_program_that_does_not_run_at_all_is_no_failure_of_the_run(self):
        run = self.measured(self.program("echo broken >&2; exit 2"), "fine")
        self.assertEqual(set(run.failed), {"fake"})
        self.assertIn("not even under the system's malloc: ended with status 2", run.failed["fake"])
        self.assertTrue(run.complete)

    def test_a_servers_answer_is_its_clients(self):
        # Without the client's file the server would wait for ever.
        server = """[ "$BEHAVIOUR" != crash ] || kill -SEGV $$
          until [ -e "$1/end" ]; do sleep 0.01; done
          rm "$1/end"; echo served"""
        client = self.file("client", '[ "$1" != "" ] && echo answered && : >"$1/end"')
        program = self.program(server, client=lambda folder, size: ["sh", client, folder])
        run = self.measured(program, "fine")
        self.assertEqual(run.failed, {})
        gate = programs.gate(program, self.folder, False)
        gate.prepare(self.runner)
        self.assertEqual(gate.steps[0].read.__self__.right, "served\nanswered\n")

    def test_a_server_that_dies_is_told_from_a_client_that_fails(self):
        server = '[ "$BEHAVIOUR" != crash ] || kill -SEGV $$; sleep 30'
        client = "echo no server >&2; exit 1"
        program = self.program(server, client=lambda folder, size: ["sh", "-c", client])
        case = programs.gate(program, self.folder, False).steps[0].case
        with self.assertRaisesRegex(TrialFailed, "signal 11"):
            self.runner.run(case, Allocator("c", "1", "test", None, {"BEHAVIOUR": "crash"}), 0)
        with mock.patch("paired.trial.GRACE", 0.1):
            with self.assertRaisesRegex(TrialFailed, "its client failed: no server"):
                self.runner.run(case, allocator("ours"), 0)

    def test_within_a_budget_everyone_is_in_every_round(self):
        run = self.measured(self.program("echo right"), "fine", "well", seconds=1e-9)
        self.assertEqual([r.order for r in run.rounds], [["ours", "fine", "well"]])
        # Three allocators take a second each, so 21 s have room for three mirrored rounds after the
        # first.
        took = mock.patch.object(schedule.ratios, "median_of", lambda *_: 1.0)
        with took, mock.patch.object(schedule.time, "monotonic", lambda: 0.0):
            run = self.measured(self.program("echo right"), "fine", "well", seconds=21)
        self.assertEqual([len(r.order) for r in run.rounds], [3, 6, 6, 6])

    def test_what_the_machine_lacks_is_said_with_what_to_install(self):
        absent = dataclasses.replace(self.program(""), commands=("sh", "no-such-program"))
        self.assertEqual(
            absent.missing(), "no-such-program not found (Debian: apt install nothing)"
        )
        self.assertIsNone(self.program("").missing())
        options = argparse.Namespace(
            quick=True, gate=[], micro=False, heaps=False, shapes=None, programs="fake"
        )
        with mock.patch.dict(programs.ALL, {"fake": absent}, clear=True):
            with self.assertRaisesRegex(SetupError, "apt install nothing"):
                script("run").chosen(options, self.folder)
            programs.ALL["here"] = dataclasses.replace(self.program(""), name="here")
            options.programs = "all"
            wanted, left_out = script("run").chosen(options, self.folder)
        self.assertEqual(([gate.name for gate in wanted], set(left_out)), (["here"], {"fake"}))

    def test_every_program_has_its_sources_and_the_same_input_every_time(self):
        for program in programs.ALL.values():
            for argument in program.arguments(Path("inputs"), program.quick):
                if isinstance(argument, Path) and argument.is_relative_to(programs.SOURCES):
                    self.assertTrue(argument.is_file(), argument)
            if program.make:
                texts = {program.make(random.Random(1), program.quick) for _ in range(2)}
                self.assertEqual(len(texts), 1, program.name)


class ResultsTests(unittest.TestCase):
    def test_tables_are_the_same_from_the_file(self):
        run = measured(FakeRunner({"ours": 1.0, "near": 1.1}), ["near"])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "deep" / "results.json"
            store = results.ResultsFile(path, {"subject": "ours"})
            store.update(run)
            revived = results.revive(results.load(path), run.gate)
        self.assertEqual(report.gate(run, ["near"])[0], report.gate(revived, ["near"])[0])

    def part(self, started, gates, commit="abc", digest="1"):
        return {
            "started": started,
            "finished": started,
            "subject": "ours",
            "sources": {"commit": commit, "dirty": False},
            "machine": {"cpu": "x", "cores": 2, "memory_bytes": 1, "kernel": "6"},
            "options": {"quick": False},
            "allocators": {"ours": {"sha256": digest}},
            "absent": {},
            "gates": {name: {"complete": c, "title": started} for name, c in gates.items()},
        }

    def test_parts_of_one_commit_make_a_whole(self):
        parts = {
            "b": self.part("2", {"lfh1": False, "phase": True}),
            "a": self.part("1", {"lfh1": True}),
        }
        whole = results.merge(parts)
        self.assertEqual(set(whole["gates"]), {"lfh1", "phase"})
        # the unfinished run is not preferred
        self.assertEqual(whole["gates"]["lfh1"]["title"], "1")
        self.assertEqual(len(whole["parts"]), 2)

    def test_parts_of_different_heaps_do_not_merge(self):
        for other in (self.part("2", {}, commit="xyz"), self.part("2", {}, digest="2")):
            with self.assertRaises(UsageError):
                results.merge({"a": self.part("1", {}), "b": other})

    def test_a_file_of_another_kind_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.json"
            for text in ("nonsense", "{}", json.dumps({"format": "loam-bench", "version": 9})):
                path.write_text(text)
                with self.assertRaises(UsageError):
                    results.load(path)


class SummaryTests(unittest.TestCase):
    def rows(self, run):
        header, *rows = summaries.bench([run])
        return [dict(zip(header, row)) for row in rows]

    def test_a_row_has_the_median_and_the_paired_ratio(self):
        # Every trial takes longer than the one before, and the pairs cancel this.
        rows = self.rows(measured(FakeRunner({"ours": 1.0, "near": 1.1}, drift=0.001), ["near"]))
        by_name = {row["allocator"]: row for row in rows}
        self.assertEqual([row["figure"] for row in rows], ["seconds"] * 2)
        self.assertEqual(by_name["near"]["rounds"], "3")
        self.assertAlmostEqual(float(by_name["near"]["ratio"]), 1.1, delta=0.002)
        self.assertEqual(by_name["ours"]["ratio"], "")  # its ratio to itself means nothing
        self.assertGreaterEqual(float(by_name["near"]["high"]), float(by_name["near"]["low"]))

    def test_an_allocator_that_failed_has_its_reason(self):
        run = measured(FakeRunner({"ours": 1.0, "bad": 1.0}, crashing=["bad"]), ["bad"])
        self.assertIn("failed: died of signal 11", [row["figure"] for row in self.rows(run)])

    def test_numbers_have_four_digits(self):
        for value, text in ((1339392, "1339000"), (0.52913, "0.5291"), (3, "3"), (None, ""),
                            (2.5e-9, "2.5e-09")):
            self.assertEqual(summaries.number(value), text)

    def test_new_results_replace_their_own_rows_and_no_others(self):
        header = ["results", "commit"]
        old = summaries.text([header, ["gates", "a"], ["sweep", "b"]])
        new = summaries.merge(old, [header, ["gates", "c"]])
        self.assertEqual(new, summaries.text([header, ["gates", "c"], ["sweep", "b"]]))


class SweepTests(unittest.TestCase):
    def row(self, size, faults=64, resident=64, **further):
        row = {"size": size, "alignment": 0, "blocks": 64, "pages": 64, "usable": size, "after": 0}
        row |= {"faults": faults, "resident": resident * 4096, "full_resident": 64 * size}
        return row | further

    def rows(self, **changed):
        return [self.row(64000), self.row(65536, **changed), self.row(70000)]

    def test_a_smooth_curve_has_no_finding(self):
        self.assertEqual(sweeps.findings(self.rows()), [])

    def test_a_size_that_sticks_out_is_named(self):
        for changed in (
            {"faults": 90},
            {"resident": 100},
            {"usable": 80000, "full_resident": 64 * 80000},
            {"full_resident": 64 * 80000},
            {"after": 2 << 20},
        ):
            found = sweeps.findings(self.rows(**changed))
            self.assertEqual(len(found), 1, found)
            self.assertIn("65536 B", found[0])

    def test_a_file_has_the_rows_that_were_measured(self):
        rows = self.rows(warm_ns=12.345)
        self.assertEqual(sweeps.unpack(sweeps.pack(self.rows())), self.rows())
        self.assertEqual(sweeps.unpack({"failed": "x"}), [])
        self.assertEqual(sweeps.pack([rows[1]])["rows"][0][-1], 12.3)

    def test_a_plateau_is_no_cliff_but_its_edge_is(self):
        rows = [self.row(size, faults=64 if size < 5000 else 200)
                for size in range(4096, 8192, 512)]
        self.assertEqual(len(sweeps.findings(rows)), 1)


class AgeingTests(unittest.TestCase):
    def rounds(self, resident, seconds=lambda i: 1.0, count=40):
        return [
            {
                "type": "checkpoint",
                "series": "x",
                "seconds": seconds(i),
                "resident_bytes": resident(i),
                "minor_faults": 100 * i,
                "mappings": 50,
            }
            for i in range(count)
        ]

    def growing(self, lines):
        return [row["figure"] for row in script("ageing").judge("tokens", lines, True)
                if row["grows"]]

    def test_what_only_wavers_does_not_grow(self):
        lines = self.rounds(lambda i: (50 << 20) + (i * 7919 % 13) * 300_000,
                            lambda i: 1 + i % 3 / 10)
        self.assertEqual(self.growing(lines), [])

    def test_a_leak_of_a_hundredth_a_round_is_seen(self):
        lines = self.rounds(lambda i: (50 << 20) + i * 500_000 + (i * 7919 % 13) * 300_000)
        self.assertEqual(self.growing(lines), ["resident"])

    def test_rounds_that_get_slower_are_seen(self):
        lines = self.rounds(lambda i: 50 << 20, lambda i: 1 + i * 0.005 + i % 3 / 100)
        self.assertEqual(self.growing(lines), ["seconds"])


class GoldenTests(unittest.TestCase):
    RECORD = """events: Ir Dr Dw Bc Bi
fn=(below main)
1 5
fn=measure_pair_16
10 100 0 2
cfn=malloc
calls=999 1
11 19980 1998 999 999
cfn=malloc
calls=1 1
12 20 2 1 1
cfn=free
calls=1000 1
13 30000 3000 1000 2000 0
fn=main
"""

    def counts(self, *replacements):
        text = self.RECORD
        for old, new in replacements:
            text = text.replace(old, new)
        return {"pair_16": script("golden").parse(text, "pair_16")}

    def test_costs_are_per_call_over_all_call_sites(self):
        found = self.counts()["pair_16"]
        self.assertEqual(found["malloc"]["instructions"], 20)
        self.assertEqual(found["free"]["branches"], 2)

    def test_dearer_and_cheaper_are_told_apart(self):
        golden = {"exact": self.counts(), "bound": {}}
        after = self.counts(("30000", "31000"), ("1998 ", "999 "))
        dearer, cheaper = script("golden").compare(golden, after, True, True)
        self.assertEqual((len(dearer), len(cheaper)), (1, 1))

    def test_what_is_exact_is_let_move_only_under_another_compiler(self):
        golden = {"exact": self.counts(), "bound": {}}
        for instructions, point_release, foreign in (("31000", 0, 0), ("36000", 1, 0),
                                                     ("46000", 1, 1)):
            after = self.counts(("30000", instructions))
            tell = script("golden").compare
            self.assertEqual(len(tell(golden, after, True, True)[0]), 1)
            self.assertEqual(len(tell(golden, after, False, True)[0]), point_release)
            self.assertEqual(len(tell(golden, after, False, False)[0]), foreign)

    def test_a_bound_may_move_with_the_clock_and_no_more(self):
        golden = {"exact": {}, "bound": self.counts()}
        for instructions, dearer in (("34000", 0), ("38000", 1), ("20000", 0)):
            found = script("golden").compare(
                golden, self.counts(("30000", instructions)), True, True
            )
            self.assertEqual((len(found[0]), len(found[1])), (dearer, 0))

    def test_a_golden_case_that_is_not_counted_is_a_finding(self):
        golden = {"exact": self.counts(), "bound": {}}
        self.assertEqual(len(script("golden").compare(golden, {}, True, True)[0]), 2)

    def test_compilers_have_families(self):
        family = script("golden").family_of
        self.assertEqual(family("GCC: (Debian 12.2.0-14+deb12u1) 12.2.0"), "gcc-12")
        self.assertEqual(family("Debian clang version 14.0.6"), "clang-14")
        self.assertEqual(family(None), "unknown")


class MessageTests(unittest.TestCase):
    def test_what_a_message_says_to_make_makes_the_programs(self):
        named = set()
        for path in [*HERE.glob("paired/*.py"), *(p for p in HERE.iterdir() if p.is_file())]:
            if path != Path(__file__).resolve():
                text = path.read_text(errors="replace")
                named |= set(re.findall(r"does not exist; `make ([\w-]+)` makes it", text))
        self.assertTrue(named)
        for target in named:
            commands = subprocess.run(
                ["make", "--dry-run", "--no-print-directory", target],
                cwd=HERE.parent,
                capture_output=True,
                text=True,
            )
            self.assertEqual(commands.returncode, 0, commands.stderr)
            self.assertIn("--target bench", commands.stdout, f"make {target}")


class FrontierTests(unittest.TestCase):
    """Which heap is ahead at a point: speed in operations a second, overhead as a share of live
    bytes."""

    def stand(self, **heaps):
        rounds = [
            {name: [{"speed": speed * scale, "average": overhead}] for name,
             (speed, overhead) in heaps.items()}
            for scale in (1.0, 0.5, 2.0)  # the machine's speed, which pairing removes
        ]
        return frontier.stand(rounds, "loam", [name for name in heaps if name != "loam"])

    def test_a_peer_that_is_faster_and_smaller_is_ahead(self):
        found = self.stand(loam=(10, 0.20), better=(11, 0.15), faster=(12, 0.30), smaller=(9, 0.10))
        self.assertEqual(found.ahead, ["better"])

    def test_within_the_tolerance_nobody_is_ahead(self):
        self.assertEqual(self.stand(loam=(10, 0.20), a=(10.1, 0.10), b=(11, 0.1985)).ahead, [])

    def test_a_heap_below_a_share_of_the_fastest_is_slow(self):
        self.assertFalse(self.stand(loam=(9.6, 0.2), peer=(10, 0.3)).slow)
        self.assertTrue(self.stand(loam=(9.4, 0.2), peer=(10, 0.3)).slow)

    def test_only_peers_with_half_of_the_fastest_speed_are_compared_by_memory(self):
        found = self.stand(loam=(10, 0.20), slow=(4.9, 0.02), able=(5.1, 0.30))
        self.assertEqual(found.smallest, ("able", 0.30))
        self.assertFalse(found.large)
        self.assertTrue(self.stand(loam=(10, 0.20), able=(5.1, 0.10)).large)

    def test_without_figures_there_is_no_standing(self):
        self.assertIsNone(frontier.stand([{"peer": [{"speed": 1, "average": 0}]}], "loam",
                                         ["peer"]))

    def test_patterns_find_points_and_names_may_be_new(self):
        self.assertGreaterEqual(len(frontier.grid()), 60)
        self.assertEqual(len(set(frontier.grid())), len(frontier.grid()))
        self.assertEqual({p.mix for p in frontier.find(["*/wide/*"])}, {"wide"})
        self.assertEqual(frontier.find(["32M/large/fifo/4"])[0].name, "32M/large/fifo/4")
        for wrong in ("32M/huge/fifo/4", "32M/large/fifo", "x/large/fifo/1", "nothing*"):
            self.assertRaises(UsageError, frontier.find, [wrong])

    def test_figures_leave_out_the_first_checkpoints_and_the_empty_process(self):
        line = {"series": "steady", "operations": 10, "processor_seconds": 2.0, "live_bytes": 100,
                "minor_faults": 1}
        steady = [{**line, "resident_bytes": 50 + (900 if i == 0 else 120), "huge_bytes": 0}
                  for i in range(4)]
        fill = {"series": "fill", "processor_seconds": 1.0}
        end = {"peak_resident_bytes": 250, "peak_live_bytes": 100}
        found = frontier.figures(Outcome({}, {"baseline_resident_bytes": 50}, [fill, *steady], end))
        self.assertEqual((found["speed"], round(found["average"], 9), found["peak"]),
                         (5.0, 0.2, 1.0))
        # What the heap had mapped before is charged, the experiment's tables are not.
        start = {"baseline_resident_bytes": 50, "baseline_anonymous_bytes": 30, "tables_bytes": 20}
        start |= {"touch_ns": 2000.0, "touch_again_ns": 500.0}
        found = frontier.figures(Outcome({}, start, [fill, *steady], end))
        self.assertEqual((round(found["average"], 9), found["touch"]), (0.3, 4.0))

    def test_a_library_has_a_name_and_settings(self):
        read = script("frontier").library
        here = str(Path(__file__))
        self.assertEqual(read(f"old={here}").name, "old")
        self.assertEqual(read(f"{here}+A=b+C=d=e").environment, {"A": "b", "C": "d=e"})
        self.assertRaises(UsageError, read, f"{here}+A")


if __name__ == "__main__":
    unittest.main()
