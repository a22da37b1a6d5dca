"""A service that answers a request with a large report and goes on: report.py [trim]."""
import ctypes
import json
import sys
import time


def report(rows):
    table = [{"id": i, "name": "customer %d" % i, "tags": ["a%d" % (i % 7), "b%d" % (i % 11)],
              "note": "x" * (i % 900)} for i in range(rows)]
    return json.dumps(table)


kept = []
for request in range(3):
    kept.append(json.loads(report(150000))[::97])
    if "trim" in sys.argv:
        ctypes.CDLL(None).malloc_trim(0)
print("ready", flush=True)
time.sleep(3600)
