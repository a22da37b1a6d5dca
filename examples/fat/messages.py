"""A service whose threads each parse a batch of messages of 1 to 20 KB, and keep one in two
hundred: the fat process of the front page. glibc's malloc keeps the free pages of each thread's
arena.

    python3 examples/fat/messages.py &
    loam doctor PID
    loam trim PID
"""
import random
import threading
import time

kept = []


def batch(seed: int) -> None:
    chance = random.Random(seed)
    messages = [bytearray(chance.randrange(1000, 20000)) for _ in range(1500)]
    kept.extend(messages[::200])


for first in range(0, 32, 8):
    threads = [threading.Thread(target=batch, args=(first + i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("idle", flush=True)
time.sleep(600)
