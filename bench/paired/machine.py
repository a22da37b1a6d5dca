"""The machine that the benchmark ran on, and its other load."""

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def _read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _git(repository, *arguments):
    command = ["git", "-C", str(repository), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def describe(repository):
    """The properties of the machine that decide the figures, without its name."""
    cpuinfo = _read("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "kernel": platform.release(),
        "c_library": " ".join(platform.libc_ver()),
        "virtual": " hypervisor" in cpuinfo,
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "transparent_huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled").strip(),
        "overcommit": _read("/proc/sys/vm/overcommit_memory").strip(),
    }


def commit(repository):
    """Which sources were measured; `dirty` where the tree differs from the commit."""
    changes = _git(repository, "status", "--porcelain", "--untracked-files=no")
    return {"commit": _git(repository, "rev-parse", "HEAD"), "dirty": bool(changes)}


@dataclass
class CpuTimes:
    """All cores together since boot, in seconds."""

    busy: float
    steal: float
    total: float

    @staticmethod
    def now():
        fields = [int(word) for word in _read("/proc/stat").split("\n", 1)[0].split()[1:9]]
        user, nice, system, idle, wait, irq, soft, steal = fields
        busy = user + nice + system + irq + soft
        total = busy + idle + wait + steal
        return CpuTimes(busy / TICKS, steal / TICKS, total / TICKS)


@dataclass
class Quiet:
    """Measures a span of time: the shares of the machine that were stolen and that other programs
    used."""

    begin: CpuTimes
    own_begin: float

    @staticmethod
    def start():
        return Quiet(CpuTimes.now(), _own_seconds())

    def end(self):
        now = CpuTimes.now()
        total = max(now.total - self.begin.total, 1e-9)
        others = (now.busy - self.begin.busy) - (_own_seconds() - self.own_begin)
        return {
            "steal": max(0.0, (now.steal - self.begin.steal) / total),
            "others": max(0.0, others / total),
        }


def _own_seconds():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
