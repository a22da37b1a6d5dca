"""Forty workers that each had one large job and wait for the next one."""
import json
import threading
import time

# Blocks come from malloc(), as in a program in C; Python's own pools would serve the small ones.
ready = threading.Barrier(41)
kept = []


def work(number):
    job = [{"id": i, "text": "y" * (200 + (i * number) % 3000)} for i in range(1500)]
    kept.append(json.loads(json.dumps(job))[-5:])
    del job
    ready.wait()
    time.sleep(3600)


for number in range(40):
    threading.Thread(target=work, args=(number,), daemon=True).start()
ready.wait()
print("ready", flush=True)
time.sleep(3600)
