"""The results file: every sample with what made it, rewritten whole after every round.

Version 1, JSON:
  format, version, started, finished (null while it runs), interrupted, options, machine,
  sources {commit, dirty}, subject, allocators {name: version, source, file, sha256, environment},
  absent {name: reason}, left_out {program: reason}, programs {name: version},
  gates {name: {title, complete, failed {name: reason}, rounds [...]}}
A round: phase (screening or final), order, samples {allocator: [{figure: number}, ...]}, steal,
others (shares of the machine), kept. A file that was merged has `parts`, in the order of time.
Tables and verdicts are made from this file alone.
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
    """Writes a file beside it and renames that, so that readers never see half of it, even on a
    full disk."""

    def __init__(self, path, header, resume=None):
        """`resume`: the data of an earlier run, whose gates are kept; see may_resume()."""
        self.path = path
        self.data = {
            "format": FORMAT,
            "version": VERSION,
            "started": resume["started"] if resume else now(),
            "finished": None,
            "interrupted": False,
            **header,
            "gates": dict(resume["gates"]) if resume else {},
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
    """A results file of some run. Otherwise UsageError says what is wrong with it."""
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
    """The Run of a gate from the file's data; None if it was not measured."""
    stored = data["gates"].get(gate.name)
    if stored is None:
        return None
    rounds = [
        Round(r["phase"], r["order"], r["samples"], r["steal"], r["others"], r["kept"])
        for r in stored["rounds"]
    ]
    return Run(gate, data["subject"], rounds, stored["failed"], stored["complete"])


def _identity(data):
    """What must be the same for two runs to be parts of one: (words, value)."""
    heap = data["allocators"][data["subject"]]
    machine = {key: data["machine"].get(key) for key in ("cpu", "cores", "memory_bytes", "kernel")}
    return [
        ("commit", data["sources"]["commit"]),
        ("heap under judgement", (data["subject"], heap["sha256"])),
        ("machine", machine),
        ("form", data["options"]["quick"]),
    ]


def _same(first, second, where):
    for (words, one), (_, other) in zip(_identity(first), _identity(second)):
        if one != other:
            raise UsageError(f"{where} has another {words}: {other}, not {one}")
    for name in first["allocators"].keys() & second["allocators"].keys():
        if first["allocators"][name]["sha256"] != second["allocators"][name]["sha256"]:
            raise UsageError(f"{where} measured another build of {name}")


def may_resume(data, header, path):
    """UsageError unless a run with this header may go on with the file's gates."""
    where = f"{path} (from the earlier run; another --output starts anew)"
    _same(header, data, where)
    if set(data["allocators"]) != set(header["allocators"]):
        raise UsageError(f"{where} has other peers: {', '.join(data['allocators'])}")


def merge(parts):
    """One data set from several of the same commit, heap and machine. `parts`: {path: data}. If
    several have a gate, a finished one is preferred to an unfinished one, and then the latest is
    preferred."""
    ordered = sorted(parts.items(), key=lambda item: item[1]["started"])
    first = ordered[0][1]
    whole = {**first, "allocators": {}, "absent": {}, "gates": {}, "parts": []}
    for path, data in ordered:
        _same(first, data, str(path))
        whole["allocators"].update(data["allocators"])
        whole["absent"].update(data["absent"])
        for key in ("left_out", "programs"):
            whole[key] = whole.get(key, {}) | data.get(key, {})
        whole["sources"]["dirty"] = whole["sources"]["dirty"] or data["sources"]["dirty"]
        whole["finished"] = data["finished"]
        whole["parts"].append(
            {key: data[key] for key in ("started", "finished", "options")}
            | {"gates": list(data["gates"])}
        )
        for name, gate in data["gates"].items():
            if gate["complete"] or not whole["gates"].get(name, {}).get("complete"):
                whole["gates"][name] = gate
    for name in whole["allocators"]:
        whole["absent"].pop(name, None)
    whole["interrupted"] = not all(gate["complete"] for gate in whole["gates"].values())
    return whole


def store(path, data):
    try:
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(data, separators=(",", ":")) + "\n")
        os.replace(partial, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
