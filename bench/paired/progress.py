"""Says on standard error what runs now and how long the present gate will take."""

import sys
import time


class Progress:
    """On a terminal one line, rewritten; elsewhere a line per stage."""

    def __init__(self):
        self.live = sys.stderr.isatty()
        self.title, self.total, self.done, self.began = "", 0, 0, 0.0

    def plan(self, gate, trials, stage):
        self.title, self.total, self.done = f"{gate.name}, {stage}", trials, 0
        self.began = time.monotonic()
        self._say(f"{self.title}: {trials} trials", keep=not self.live)

    def tick(self, allocator, seconds):
        self.done += 1
        each = (time.monotonic() - self.began) / self.done
        left = max(0, self.total - self.done) * each
        text = f"{self.title}: {self.done}/{self.total}, {allocator} {seconds:.1f} s"
        if self.live:
            self._say(f"{text}, about {_duration(left)} left", keep=False)
        elif self.done == 1:
            self._say(f"{text}; the stage takes about {_duration(left)}", keep=True)

    def kept(self, gate):
        self._say(f"{gate.name}: finished in an earlier run", keep=True)

    def failed(self, allocator, reason):
        self._say(f"{self.title}: {allocator} failed: {reason}", keep=True)

    def discarded(self, steal):
        self._say(f"{self.title}: round discarded, {steal:.1%} of the machine stolen", keep=True)

    def clear(self):
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _say(self, text, keep):
        start = "\r\033[K" if self.live else ""
        end = "\n" if keep or not self.live else ""
        if keep or self.live:
            print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


def _duration(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
