#!/usr/bin/env python3
"""Compares what a reader in another process finds with what the program itself says.

    test_reader.py TARGET [NAME ...]             runs the tests, or those named
    test_reader.py TARGET --write FOLDER         writes the golden images and the expected figures
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
import reader  # noqa: E402  beside this file

GOLDEN = ROOT / "formats" / "golden"
TARGET = None


class Target:
    def __init__(self, mode, **environment):
        self.process = subprocess.Popen([TARGET, mode], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE,
                                        env=os.environ | environment)
        text = b""
        while not text.endswith(b"ready\n"):
            line = self.process.stdout.readline()
            assert line, "the target ended"
            text += line
        self.says = json.loads(text.removesuffix(b"ready\n"))
        self.memory = reader.Process(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=120)
        self.process.stdout.close()
        os.close(self.memory.memory)


def published_after(path, began_ns):
    """An image that was begun after that time. Images are stamped when they are complete, so this
    is the second younger one."""
    deadline, first = time.monotonic() + 60, None
    while time.monotonic() < deadline:
        if path.exists():
            image = reader.Image(path)
            if image.taken_ns > began_ns:
                if first not in (None, image.taken_ns):
                    return image
                first = image.taken_ns
        time.sleep(0.02)
    raise AssertionError(f"no two images were written to {path} within a minute")


def trimmed(bins):
    bins = list(bins)
    while bins and bins[-1] == 0:
        bins.pop()
    return bins


# Reading takes locks itself, and the system causes the faults.
MOVED_BY_READING = {"lock_acquisitions", "minor_faults", "major_faults"}


class ReaderTest(unittest.TestCase):
    def compare(self, found, says):
        for name, value in found["counters"].items():
            if name not in MOVED_BY_READING:
                self.assertEqual(says["counters"][name], value, name)
        for mine, theirs in zip(found["classes"], says["classes"], strict=True):
            for name, value in mine.items():
                value = trimmed(value) if name == "occupancy" else value
                self.assertEqual(theirs[name], value, f"{name} of {mine['class_bytes']} bytes")
        for name, bins in found["histograms"].items():
            self.assertEqual(says["histograms"][name], trimmed(bins), name)
        locks = {lock["name"]: lock for lock in says["locks"]}
        for name, lock in found["locks"].items():
            self.assertEqual(locks[name]["lock_waited"], lock["lock_waited"], name)

    def check_identity(self, v):
        self.assertEqual(v["committed_bytes"],
                         v["live_bytes"] + v["cached_bytes"] + v["span_free_bytes"]
                         + v["span_tail_bytes"] + v["set_aside_bytes"] + v["free_run_bytes"]
                         + v["metadata_bytes"])
        self.assertEqual(v["used_bytes"], v["live_bytes"] + v["cached_bytes"] + v["span_free_bytes"]
                         + v["span_tail_bytes"] + v["set_aside_bytes"])
        self.assertEqual(v["backed_bytes"], v["committed_bytes"] - v["purged_bytes"])

    def quiescent(self, mode, **environment):
        with Target(mode, **environment) as target:
            found = reader.read(target.memory)
            self.compare(found, target.says)
            self.check_identity(found["counters"])
            self.check_identity(target.says["counters"])
            return found["counters"], target.says

    def test_an_idle_process_is_read_exactly(self):
        self.quiescent("idle")

    def test_classes_that_the_program_split_are_read_exactly(self):
        found, says = self.quiescent("split")
        by_bytes = {c["class_bytes"]: c for c in says["classes"]}
        for finer, whole in ((1040, 1152), (4368, 4544)):
            self.assertGreater(min(by_bytes[c]["class_live_blocks"] for c in (finer, whole)), 100)
        self.assertGreater(found["live_small_bytes"], 8_000_000)

    def test_after_a_busy_phase_every_figure_agrees(self):
        found, _ = self.quiescent("busy")
        self.assertGreater(found["live_large_bytes"], 0)
        self.assertGreater(found["live_huge_bytes"], 0)
        self.assertGreater(found["set_aside_bytes"] + found["private_records_bytes"], 0)
        self.assertNotIn("allocs", found)

    def test_sampling_counts_every_call(self):
        found, says = self.quiescent("busy", LOAM_SAMPLE="10")
        private = says["heaps"][0]["counters"]["live_blocks"]
        # its large block
        self.assertEqual(found["allocs"] - found["frees"], found["live_blocks"] - private + 1)
        self.assertGreater(found["cached_allocs"], found["allocs"] // 4)
        self.assertAlmostEqual(found["timed_allocs"], found["allocs"] / 10,
                               delta=found["allocs"] / 50)

    def test_without_sampling_it_says_unknown(self):
        _, says = self.quiescent("idle")
        for name in ("allocs", "frees", "small_rounding_bytes", "alloc_rate"):
            self.assertIsNone(says["counters"][name], name)
        self.assertIsNone(says["histograms"]["alloc_time"])

    def test_under_load_records_are_right_in_themselves(self):
        with Target("load") as target:
            before = reader.read(target.memory)["counters"]
            torn = 0
            for _ in range(20):
                v = reader.read(target.memory)["counters"]
                self.assertGreaterEqual(v["cache_misses"] + v["cache_frees"],
                                        before["cache_misses"])  # counters only grow, torn or not
                self.assertLessEqual(v["dirty_bytes"], v["free_run_bytes"] + (4 << 20))
                # The sum is off by what changed during the reading. That is a few blocks a thread.
                # In the rare moment, every kParkedMs or later, when old parked memory moves on, it
                # is all parked memory.
                total = (v["live_bytes"] + v["cached_bytes"] + v["span_free_bytes"]
                         + v["span_tail_bytes"]
                         + v["set_aside_bytes"] + v["free_run_bytes"] + v["metadata_bytes"])
                torn += abs(total - v["committed_bytes"]) > 4 << 20
                before = v
            self.assertLessEqual(torn, 3)

    def test_a_reader_survives_a_target_that_dies(self):
        target = Target("load")
        target.process.kill()
        target.process.wait()
        with self.assertRaises((reader.Unreadable, AssertionError, OSError)):
            reader.read(target.memory)
        target.__exit__()

    def test_resident_is_at_most_backed(self):
        with Target("busy") as target:
            v = reader.read(target.memory)["counters"]
            # Not statm, which lacks the counts that each processor has not added up yet.
            with open(f"/proc/{target.process.pid}/smaps_rollup") as rollup:
                resident = next(int(line.split()[1]) << 10 for line in rollup
                                if line.startswith("Rss:"))
            # its own text, stacks and libraries; the program never touches huge blocks
            program = 6 << 20
            self.assertLess(resident, v["backed_bytes"] - v["live_huge_bytes"] + program)
            # The program touches all of its memory, except the tails of large blocks and the
            # private heap.
            self.assertGreater(resident, (v["backed_bytes"] - v["live_huge_bytes"]) // 2)

    def test_a_published_image_says_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            with Target("busy", LOAM_PUBLISH=folder) as target:
                path = Path(folder) / f"{target.process.pid}.image"
                image = published_after(path, time.time_ns())
                self.assertEqual(path.stat().st_mode & 0o777, 0o600)
                found = reader.read(image)
                live = reader.read(target.memory)
                for name, value in live["counters"].items():
                    if name not in MOVED_BY_READING:  # the publisher's thread holds no blocks
                        self.assertEqual(found["counters"][name], value, name)
                target.process.stdin.close()
                target.process.wait(timeout=120)
                self.assertFalse(path.exists(), "the file goes when the program ends")

    def test_an_open_folder_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            found = subprocess.run([TARGET, "idle"], stdin=subprocess.DEVNULL, capture_output=True,
                                   text=True,
                                   env=os.environ | {"LOAM_PUBLISH": folder})
            self.assertIn("LOAM_PUBLISH", found.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_golden_images(self):
        images = sorted(GOLDEN.glob("*.image"))
        self.assertGreaterEqual(len(images), 2)
        for image in images:
            with self.subTest(image.name):
                found = reader.read(reader.Image(image), older=True)
                self.compare(found, json.loads(image.with_suffix(".json").read_text()))


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, environment in (("idle", {}), ("split", {}), ("busy", {"LOAM_SAMPLE": "10"})):
        with Target(name, **environment) as target:
            reader.read(target.memory)
            directory = reader.Directory(target.memory)
            pieces = {a: d for a, d in target.memory.pieces.items()}
            reader.write_image(folder / f"{name}.image", pieces, directory.address,
                               target.process.pid,
                               time.time_ns())
            for moved in ("minor_faults", "major_faults", "lock_acquisitions"):
                target.says["counters"].pop(moved)
            (folder / f"{name}.json").write_text(json.dumps(target.says, indent=1) + "\n")


if __name__ == "__main__":
    TARGET = sys.argv.pop(1)
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]))
    else:
        unittest.main()
