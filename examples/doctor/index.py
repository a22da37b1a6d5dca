"""A search over an index that is a mapped file."""
import mmap
import tempfile
import time

with tempfile.TemporaryFile() as file:
    file.truncate(300 << 20)
    index = mmap.mmap(file.fileno(), 0)
    for at in range(0, len(index), 4096):
        index[at] = 1
    print("ready", flush=True)
    time.sleep(3600)
