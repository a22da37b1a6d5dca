"""Keeps buffers under functions that Python names for perf (-X perf)."""

import sys

kept = []


def lose_session(size):
    kept.append(bytearray(size))


def serve(count):
    for _ in range(count):
        lose_session(16384)


print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "quit":
        break
    serve(int(line))
    print("done", flush=True)
