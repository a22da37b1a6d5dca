#!/usr/bin/env python3
"""Records a program with libloam-record.so, drains its rings as `loam record` does, and compares
the events with the program's own statements.

    drain.py --recorder FILE [--behind FILE] [--drop] [--slow SECONDS] [--die-after SECONDS]
             [--no-room BYTES]
             [--code N] [--quiet] -- PROGRAM...

A program prints on standard output, one a line:
    expect size BYTES allocated N freed N    blocks of exactly that size, in all of its processes
    expect family NAME allocated N           the same by family
    expect processes N
    expect threads N                         in all of its processes
    expect shared|apart|own SIZE             whether allocations of exactly that size share stamps:
                                             most do, few do, none does
    expect mapped|unmapped|trims SIZE N      events of that size, in all of its processes
In every program, no free may come before its allocation, and no free may be of an unknown block. In
a child that forked, blocks of the parent are excepted.

Exit status: 0 as expected, 1 not.
"""
from __future__ import annotations

import argparse
import collections
import fcntl
import functools
import heapq
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAGIC = 0x31474E49524D4C00
VERSION = 5
SLOTS, CONTROL, SLOT, UNIT, LEASE = 65536, 4096, 128, 16, 1408
(TIME, ALLOCATE, FREE, FROM, TO, BEGINS, ENDS, FORKS, DROPPED, HIGH, TOUCHED, MAPPED, UNMAPPED,
 TRIMS) = range(1, 15)
NAMED = {"mapped": MAPPED, "unmapped": UNMAPPED, "trims": TRIMS}
REORDERED = 100_000  # ticks of the counter
MOST_SHARING = 17  # native/recorder/event.h, kShareStamp
FAMILIES = ["malloc", "calloc", "aligned", "valloc", "new", "new[]", "aligned-new", "aligned-new[]"]
CONTROL_HEAD = struct.Struct("<QIIQQQQQIIIIIIQQII32s256s")


class Ring:
    def __init__(self) -> None:
        self.tail = 0
        self.high = 0
        self.owner = (0, 0)
        self.queue: collections.deque = collections.deque()
        self.size = 0
        self.touched = None
        self.last = 0


class Image:
    """One process image's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR)
        self.rings: dict[int, Ring] = {}
        self.live: dict[int, int] = {}
        self.counts: collections.Counter = collections.Counter()
        self.sizes: collections.Counter = collections.Counter()
        self.families: collections.Counter = collections.Counter()
        self.stamps: dict[int, list[int]] = collections.defaultdict(list)
        self.named: collections.Counter = collections.Counter()
        self.threads: set[int] = set()
        self.unknown: list = []
        self.resizing: dict = {}
        self.waiting: dict[int, list[tuple]] = {}
        self.late = self.repaired = 0
        self.emitted = 0
        self.sharing = self.most_sharing = 0
        self.touches: list = []
        self.dropped = 0

    def control(self) -> dict | None:
        raw = os.pread(self.file, CONTROL_HEAD.size, 0)
        if len(raw) < CONTROL_HEAD.size:
            return None
        names = ("magic version pid start rate stamp monotonic realtime how state slots_made "
                 "large_made released threads "
                 "file_end lost fork_number parent parent_file why").split()
        values = dict(zip(names, CONTROL_HEAD.unpack(raw)))
        for name in ("parent_file", "why"):
            values[name] = values[name].split(b"\0")[0].decode()
        return values if values["magic"] == MAGIC else None

    @functools.cached_property
    def is_fork(self) -> bool:
        return (self.control() or {"how": 0})["how"] == 2

    def heads(self, count: int) -> list[tuple[int, int, int, int]]:
        # The head of the thread whose events may share stamps precedes all other heads
        # (native/recorder/lease.h).
        holder = struct.unpack("<I", os.pread(self.file, 4, LEASE))[0] - 1
        first = os.pread(self.file, SLOT, CONTROL + holder * SLOT) if 0 <= holder < count else b""
        raw = bytearray(os.pread(self.file, count * SLOT, CONTROL))
        raw[holder * SLOT:holder * SLOT + len(first)] = first
        heads = []
        for index in range(len(raw) // SLOT):
            _, _, head, offset, size = struct.unpack_from("<IIQQQ", raw, index * SLOT)
            if offset and size:
                heads.append((index, head, offset, size))
        return heads

    def read(self, index: int, head: int, offset: int, size: int) -> None:
        ring = self.rings.setdefault(index, Ring())
        if head <= ring.tail:
            return
        begin, end = ring.tail % size, (head - 1) % size + 1
        if begin < end:
            raw = os.pread(self.file, end - begin, offset + begin)
        else:
            raw = os.pread(self.file, size - begin, offset + begin) + os.pread(self.file, end,
                                                                               offset)
        assert len(raw) == head - ring.tail, (len(raw), head, ring.tail, size)
        units = struct.iter_unpack("<QQ", raw)
        for word0, word1 in units:
            kind, family, value = word0 >> 48 & 31, word0 >> 53 & 15, word0 & (1 << 48) - 1
            if kind == TIME:
                ring.high = word1 >> 32
                _, second = next(units)
                ring.owner = (second >> 32, second & 0xFFFFFFFF)
                ring.last = word1
                continue
            stamp = ring.high << 32 | word1 >> 32
            ring.last = stamp
            if kind == HIGH:
                ring.size = value << 32
                continue
            if kind == TOUCHED:
                ring.touched = value
                continue
            size_asked = ring.size | word1 & 0xFFFFFFFF
            ring.queue.append((stamp, ring.owner[0], kind, family, value, size_asked, ring.touched,
                               word0 >> 57 & 63))
            ring.size, ring.touched = 0, None
        ring.tail = head
        os.pwrite(self.file, struct.pack("<Q", ring.tail), CONTROL + index * SLOT + 64)

    def drain(self, is_last: bool) -> None:
        control = self.control()
        if control is None:
            return
        count = min(control["slots_made"], SLOTS)
        for head in self.heads(count):
            self.read(*head)
        until = max((ring.last for ring in self.rings.values()), default=0)
        count = min(self.control()["slots_made"], SLOTS)
        for head in self.heads(count):
            self.read(*head)
        order = [(ring.queue[0][0], index) for index, ring in self.rings.items() if ring.queue]
        heapq.heapify(order)
        while order:
            stamp, index = order[0]
            if stamp > until and not is_last:
                break
            queue = self.rings[index].queue
            self.take(queue.popleft())
            if queue:
                heapq.heapreplace(order, (queue[0][0], index))
            else:
                heapq.heappop(order)

    def settle(self, address: int, event: tuple) -> None:
        """One event of a block at that address: (is_begin, size, stamp, thread).

        The processor reads its counter some tens of nanoseconds early, so events of two threads may
        come in the wrong order. An event that does not fit waits, and so do all later events of its
        thread with that address.
        """
        waiting = self.waiting.get(address)
        if waiting is None:
            if not event[0] and address not in self.live and self.is_fork:
                return  # a block of the parent process
            if event[0] != (address in self.live):
                self.apply(address, event)
                return
            self.waiting[address] = [event]
            return
        waiting.append(event)
        is_moving = True
        while is_moving:
            is_moving = False
            seen = set()
            for one in waiting:
                if one[3] not in seen and one[0] != (address in self.live):
                    waiting.remove(one)
                    self.apply(address, one)
                    if event[2] - one[2] < REORDERED:
                        self.repaired += 1
                    else:
                        self.unknown.append(("late", hex(address), one[3]))
                    is_moving = True
                    break
                seen.add(one[3])
        if not waiting:
            del self.waiting[address]

    def apply(self, address: int, event: tuple) -> None:
        if event[0]:
            self.live[address] = event[1]
        else:
            self.sizes[self.live.pop(address), "freed"] += 1

    def take(self, event: tuple) -> None:
        stamp, thread, kind, family, address, size, touched, _ = event
        self.late += stamp < self.emitted
        self.sharing = self.sharing + 1 if stamp == self.emitted else 1
        self.most_sharing = max(self.most_sharing, self.sharing)
        self.emitted = max(self.emitted, stamp)
        self.counts[kind] += 1
        self.threads.add(thread)
        if touched is not None:
            self.touches.append((touched, self.live.get(address, 0)))
        if kind == ALLOCATE:
            self.sizes[size, "allocated"] += 1
            self.stamps[size].append(stamp)
            self.families[FAMILIES[family]] += 1
            if address:
                self.settle(address, (True, size, stamp, thread))
        elif kind == FREE:
            self.settle(address, (False, 0, stamp, thread))
        elif kind == FROM:
            self.resizing[thread] = (address, self.live.pop(address, None))
            if self.resizing[thread][1] is None:
                self.unknown.append(("resize", hex(address), thread))
        elif kind == TO:
            old, old_size = self.resizing.pop(thread)
            if address:
                self.live[address] = size
                self.sizes[old_size, "freed"] += 1
                self.sizes[size, "allocated"] += 1
            elif old_size is not None:
                self.live[old] = old_size
        elif kind == DROPPED:
            self.dropped += address
        elif kind in NAMED.values():
            self.named[kind, size] += 1


def start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def is_gone(pid: int, start: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] in "ZX" or int(fields[19]) != start
    except OSError:
        return True


class Session:
    def __init__(self, folder: Path, drops: bool) -> None:
        self.folder = folder
        self.file = os.open(folder / "session", os.O_RDWR | os.O_CREAT, 0o600)
        # Whoever drains holds this lock.
        fcntl.flock(self.file, fcntl.LOCK_EX)
        head = struct.pack("<QIIQQII", MAGIC, VERSION, os.getpid(), start_ticks(os.getpid()), 0, 0,
                           int(drops))
        os.pwrite(self.file, head.ljust(4096, b"\0"), 0)
        self.images: dict[str, Image] = {}

    def beat(self) -> None:
        os.pwrite(self.file, struct.pack("<Q", time.clock_gettime_ns(time.CLOCK_MONOTONIC)), 24)

    def step(self, is_last: bool = False) -> None:
        self.beat()
        for name in os.listdir(self.folder):
            if re.fullmatch(r"\d+\.\d+", name) and name not in self.images:
                self.images[name] = Image(self.folder / name)
        for image in self.images.values():
            image.drain(is_last)

    def is_named(self) -> bool:
        """Whether a process without a file yet belongs to the recording. Its environment tells."""
        named = f"LOAM_RECORD={self.folder}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if named in path.read_bytes().split(b"\0"):
                    return True
            except OSError:
                pass
        return False

    def is_all_gone(self) -> bool:
        controls = [image.control() for image in self.images.values()]
        return (all(is_gone(control["pid"], control["start"]) for control in controls if control)
                # Reads the list twice: a process that forks and ends during the reading leaves a
                # child that is not in it.
                and not self.is_named() and not self.is_named())


def judge(session: Session, output: str, code: int, options: argparse.Namespace,
          error: str) -> list[str]:
    failures = []
    images = list(session.images.values())
    total: collections.Counter = collections.Counter()
    families: collections.Counter = collections.Counter()
    threads = 0
    for image in images:
        control = image.control() or {"how": 0, "why": "no control page", "pid": 0}
        total.update(image.sizes)
        families.update(image.families)
        threads += len(image.threads)
        if control["why"] and not options.no_room and options.die_after is None:
            failures.append(f"process {control['pid']} was switched off: {control['why']}")
        early = [("over" if is_begin else "free", hex(address), size, thread)
                 for address, waiting in image.waiting.items() for is_begin, size, _,
                 thread in waiting]
        unknown = [one for one in image.unknown + early if control["how"] == 1
                   or one[0] != "resize"]
        if unknown and not options.drop and options.die_after is None and not options.no_room:
            failures.append(f"{image.path.name}: {len(unknown)} events do not fit: {unknown[:5]}")
    if code != options.code:
        failures.append(f"exit status {code} instead of {options.code}: {error[-500:]}")
    if options.die_after is not None or options.no_room or options.drop:
        return failures
    for line in output.splitlines():
        words = line.split()
        if words[:2] == ["expect", "size"]:
            size, allocated, freed = int(words[2]), int(words[4]), int(words[6])
            found = total[size, "allocated"], total[size, "freed"]
            if found != (allocated, freed):
                failures.append(f"size {size}: allocated, freed {found} instead of "
                                f"{(allocated, freed)}")
        elif words[:2] == ["expect", "family"] and families[words[2]] != int(words[4]):
            failures.append(f"family {words[2]}: {families[words[2]]} instead of {words[4]}")
        elif words[0] == "expect" and words[1] in ("shared", "apart", "own"):
            stamps = [stamp for image in images for stamp in image.stamps[int(words[2])]]
            share = len(set(stamps)) / max(1, len(stamps))
            if not {"shared": 0 < share < 0.5, "apart": share > 0.5, "own": share == 1}[words[1]]:
                failures.append(f"size {words[2]}: {len(stamps)} events have {share:.0%} as many "
                                f"stamps")
            most = max(image.most_sharing for image in images)
            if most > MOST_SHARING:
                failures.append(f"{most} events share a stamp")
        elif words[0] == "expect" and words[1] in NAMED:
            found = sum(image.named[NAMED[words[1]], int(words[2])] for image in images)
            if found != int(words[3]):
                failures.append(f"{words[1]} {words[2]}: {found} instead of {words[3]}")
        elif words[:2] == ["expect", "processes"] and len(images) != int(words[2]):
            failures.append(f"{len(images)} processes instead of {words[2]}")
        elif words[:2] == ["expect", "threads"] and threads != int(words[2]):
            failures.append(f"{threads} threads instead of {words[2]}")
        elif words[:2] == ["expect", "rings"] and max(image.control()["slots_made"]
                                                      for image in images) > int(words[2]):
            failures.append(f"{images[0].control()['slots_made']} rings, more than {words[2]}")
        elif words[:2] == ["expect", "touched"]:
            size, pages = int(words[2]), int(words[3])
            found = [touched for image in images for touched, of in image.touches if of == size]
            if not found or any(touched != pages for touched in found):
                failures.append(f"touched pages of {size}: {found[:8]} instead of {pages}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--recorder", type=Path, required=True)
    parser.add_argument("--behind", default="")
    parser.add_argument("--drop", action="store_true")
    parser.add_argument("--slow", type=float, default=0.002)
    parser.add_argument("--die-after", type=float)
    parser.add_argument("--no-room", type=int)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="loam-drain-", dir="/dev/shm"))
    session = Session(folder, options.drop)
    preload = ":".join(filter(None, [str(options.recorder.resolve()), options.behind,
                                     os.environ.get("LD_PRELOAD", "")]))
    environment = {**os.environ, "LD_PRELOAD": preload, "LOAM_RECORD": str(folder)}
    limit = [] if not options.no_room else ["prlimit", f"--fsize={options.no_room}"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(["env", f"LD_PRELOAD={preload}", f"LOAM_RECORD={folder}",
                                  *options.program]
                                 if not limit else [*limit, "env", f"LD_PRELOAD={preload}",
                                                    f"LOAM_RECORD={folder}",
                                                    *options.program],
                                 stdout=out, stderr=err, env={k: v for k, v in environment.items()
                                                              if k not in ("LD_PRELOAD",
                                                                           "LOAM_RECORD")})
        begin = time.monotonic()
        if options.die_after is not None:
            # As the kernel does when a drainer ends.
            time.sleep(options.die_after)
            fcntl.flock(session.file, fcntl.LOCK_UN)
        while child.poll() is None or not session.is_all_gone():
            if options.die_after is None:
                session.step()
            time.sleep(options.slow)
            if time.monotonic() - begin > 120:
                child.kill()
                print("it does not end")
                return 1
        if folder.exists():
            session.step(is_last=True)
        out.seek(0)
        err.seek(0)
        output, error = out.read(), err.read()
    failures = judge(session, output, child.returncode, options, error)
    if (options.die_after is not None and folder.exists() and "gone away" not in error
            and "expect nothing" not in output):
        failures.append(f"nothing was said about the drainer's end: {error!r}")
    if options.no_room and "unrecorded" not in error:
        failures.append(f"nothing was said about the lack of room: {error!r}")
    events = sum(sum(image.counts.values()) for image in session.images.values())
    late = sum(image.late for image in session.images.values())
    if not options.quiet:
        print(f"{events} events, {len(session.images)} processes, {late} late, "
              f"{sum(image.repaired for image in session.images.values())} repaired, "
              f"{sum(image.dropped for image in session.images.values())} dropped")
        sys.stdout.write(output)
        sys.stderr.write(error)
    shutil.rmtree(folder, ignore_errors=True)
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
