"""The results file: every sample with what made it, rewritten whole after every round.

Version 1, JSON:
  format, version, started, finished (null while it runs), interrupted, options, machine,
  sources {commit, dirty}, subject, allocators {name: version, source, file, sha256, environment},
  absent {name: reason}, gates {name: {title, complete, failed {name: reason}, rounds [...]}}
A round: phase (screening or final), order, samples {allocator: [{figure: number}, ...]}, steal,
others (shares of the machine), kept. Tables and verdicts are made from this file alone.
"""

import json
import os
import time

from .errors import UsageError
from .schedule import Round, Run

FORMAT, VERSION = "loam-bench", 1


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class ResultsFile:
    """Writes to a neighbour and renames, so that a reader or a full disk never sees half of it."""

    def __init__(self, path, header):
        self.path = path
        self.data = {
            "format": FORMAT,
            "version": VERSION,
            "started": now(),
            "finished": None,
            "interrupted": False,
            **header,
            "gates": {},
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.write()
        except OSError as error:
            raise UsageError(f"cannot write results to {path}: {error.strerror}") from None

    def update(self, run):
        self.data["gates"][run.gate.name] = {
            "title": run.gate.title,
            "complete": run.complete,
            "failed": run.failed,
            "rounds": [r.as_json() for r in run.rounds],
        }
        self.write()

    def finish(self, interrupted):
        self.data["finished"], self.data["interrupted"] = now(), interrupted
        self.write()

    def write(self):
        partial = self.path.with_name(self.path.name + ".partial")
        with open(partial, "w") as out:
            json.dump(self.data, out, indent=None, separators=(",", ":"))
            out.write("\n")
        os.replace(partial, self.path)


def load(path):
    """A results file that some run wrote; UsageError says what is wrong with another."""
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(f"{path} is not a results file of bench/run")
    if data.get("version") != VERSION:
        raise UsageError(f"{path} has version {data.get('version')}; this program reads {VERSION}")
    return data


def revive(data, gate):
    """The Run of a gate as the file has it; None if it was not measured."""
    stored = data["gates"].get(gate.name)
    if stored is None:
        return None
    rounds = [
        Round(r["phase"], r["order"], r["samples"], r["steal"], r["others"], r["kept"])
        for r in stored["rounds"]
    ]
    return Run(gate, data["subject"], rounds, stored["failed"], stored["complete"])
