#!/usr/bin/env python3
"""The heap's static memory is no part of a file: zeros.py FILE..., programs and DLLs with the heap
inside.

The bytes that a file has for its data sections are loaded into every process; the heap's two
megabytes of zeros are made by the system where they are touched.
"""
import struct
import sys
from pathlib import Path

MOST = 64 << 10


def main() -> int:
    wrong = 0
    for name in sys.argv[1:]:
        data = Path(name).read_bytes()
        head = struct.unpack_from("<I", data, 0x3c)[0] + 4
        count, optional = struct.unpack_from("<H", data, head
                                             + 2)[0], struct.unpack_from("<H", data, head + 16)[0]
        sections = [struct.unpack_from("<8sIIIIIIHHI", data, head + 20 + optional + 40 * i)
                    for i in range(count)]
        written = 0xC0000040  # readable, writable, with contents
        held = sum(section[3] for section in sections if section[9] & written == written)
        zeros = sum(section[1] for section in sections if section[9] & 0x80)
        print(f"{Path(name).name}: {held} bytes of data, {zeros} of zeros")
        wrong += held > MOST or zeros < MOST
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
