"""Allocates buffers under functions that call each other in turn. The size of a buffer says under
which. All functions have frames of one size: a frame that is read too late is that of another."""

import sys
import threading

kept = [None] * 64
turn = 0


def keep(size):
    global turn
    turn += 1
    kept[turn % 64] = bytearray(size)


def leaf_0(size):
    keep(size + 100)


def leaf_1(size):
    keep(size + 200)


class Shop:
    @staticmethod
    def leaf_2(size):
        keep(size + 300)


def via_0(leaf):
    leaf(20_000)


def via_1(leaf):
    leaf(21_000)


def via_2(leaf):
    # A function of C lies between.
    list(map(leaf, [22_000]))


def via_3(leaf):
    def gives():
        yield leaf(23_000)

    list(gives())


def serve(count):
    for _ in range(count):
        for via in (via_0, via_1, via_2, via_3):
            for leaf in (leaf_0, leaf_1, Shop.leaf_2):
                via(leaf)


print("ready", flush=True)
for line in sys.stdin:
    order, count = line.split()
    if order == "quit":
        break
    if order == "thread":
        thread = threading.Thread(target=serve, args=(int(count),))
        thread.start()
        thread.join()
    else:
        serve(int(count))
    print("done", flush=True)
