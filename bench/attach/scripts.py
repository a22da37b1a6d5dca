#!/usr/bin/env python3
"""A client of Redis with a well-known mistake: it writes arguments into the text of its scripts, so
that the server keeps each text for ever. Run it beside `redis-server --save ""`, for `loam doctor
--stacks` (docs/attach.md).

    bench/attach/scripts.py PORT SECONDS
"""
import socket
import sys
import time


def encoded(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word)
                                              for word in words)


def main() -> None:
    server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    end = time.monotonic() + float(sys.argv[2])
    number = 0
    while time.monotonic() < end:
        for _ in range(20):
            cart = b"cart:%d" % (number % 5000)
            script = b"return redis.call('GET','%s') .. ' order %d'" % (cart, number)
            server.sendall(encoded(b"SET", cart, b"x" * (200 + number % 700))
                           + encoded(b"EVAL", script, b"0"))
            number += 1
        server.recv(1 << 20)
        time.sleep(0.004)


if __name__ == "__main__":
    main()
