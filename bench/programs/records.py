"""Records to JSON and back, lists in a dictionary, trees of small objects. Argument: thousands."""

import json
import random
import sys


class Node:
    __slots__ = ("left", "right")

    def __init__(self, depth):
        self.left = Node(depth - 1) if depth else None
        self.right = Node(depth - 1) if depth else None

    def count(self):
        return 1 + (self.left.count() + self.right.count() if self.left else 0)


many = 1000 * int(sys.argv[1])
random.seed(1)
records = [
    {
        "id": i,
        "name": f"n{i}",
        "values": [random.random() for _ in range(i % 9)],
        "strings": {"a": str(i) * (i % 5)},
    }
    for i in range(many)
]
for _ in range(3):
    records = json.loads(json.dumps(records))
    records.sort(key=lambda record: record["name"])
print(len(records), records[7]["name"], records[7]["values"])
lists = {}
for i in range(many * 6):
    lists.setdefault(f"w{i * 7919 % 50021}", []).append(i)
print(len(lists), sum(len(found) for found in lists.values()))
for _ in range(3):
    print(Node(15).count())
