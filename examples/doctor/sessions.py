"""A server that remembers every session: sessions.py [bound]. With a bound it forgets the oldest
ones."""
import collections
import sys
import time

bound = int(sys.argv[1]) if len(sys.argv) > 1 else None
sessions = collections.deque(maxlen=bound)
for number in range(bound or 0):
    sessions.append(bytearray(1000 + number % 500))
print("ready", flush=True)
number = 0
while True:
    for _ in range(20):
        number += 1
        sessions.append(bytearray(1000 + number % 500))
    time.sleep(0.02)
