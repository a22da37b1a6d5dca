"""sqlite3 builds and queries a table of 200,000 rows, or of a million; redis-server serves
redis-benchmark and keeps its contents through it, through a background save (fork) and through a
reload."""
from __future__ import annotations

import random
import shutil
import socket
import time
from pathlib import Path

import harness
from harness import (Failure, Side, expect_equal, expect_same_file, mapped_libraries, run, server)

INPUTS = Path(__file__).resolve().parent / "inputs"


# --- sqlite3 -------------------------------------------------------------------------------------

def sqlite(system: Side, loam: Side, folder: Path) -> str:
    answers = []
    rows = 1_000_000 if harness.is_long else 200_000
    orders = folder / "orders.sql"
    orders.write_text((INPUTS / "rows.sql").read_text().replace("ROWS", str(rows)))
    for side in (system, loam):
        work = folder / side.name.replace(" ", "-")
        work.mkdir()
        answers.append(run(side, ["sqlite3", "-batch", "table.db"], folder=work, timeout=900,
                           stdin=orders).output)
    if f"\n{rows}|" not in answers[0] or "\nok\n" not in answers[0]:
        raise Failure(f"the table is not what it should be: {answers[0][:200]}")
    expect_equal("what sqlite3 answers", *answers)
    expect_same_file("the database file", folder / system.name / "table.db",
                     folder / loam.name.replace(" ", "-") / "table.db")
    return f"{rows} rows, {len(answers[1].splitlines())} lines of answers, the same file"


# --- redis ---------------------------------------------------------------------------------------

class Client:
    """The part of the protocol that the test needs: sends commands, reads replies."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(300)
        self.socket.connect(str(path))
        self.reader = self.socket.makefile("rb")

    def send(self, *words: str | int) -> None:
        raw = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(raw)
                            + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw))

    def read(self) -> str | list:
        line = self.reader.readline().decode().rstrip("\r\n")
        if not line:
            raise Failure("redis-server closed the connection")
        kind, rest = line[0], line[1:]
        if kind == "-":
            raise Failure(f"redis-server answered: {rest}")
        if kind == "$":
            length = int(rest)
            return "" if length < 0 else self.reader.read(length + 2)[:-2].decode()
        if kind == "*":
            return [self.read() for _ in range(int(rest))]
        return rest

    def ask(self, *words: str | int) -> str:
        self.send(*words)
        return str(self.read())


def connect(path: Path, process) -> Client:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failure(f"redis-server ended at once, status {process.returncode}")
        try:
            client = Client(path)
            client.ask("PING")
            return client
        except (OSError, Failure):
            time.sleep(0.05)
    raise Failure("redis-server did not answer within two minutes")


def fill(client: Client) -> None:
    """Strings that grow and shrink, lists, hashes, sets, sorted sets, expiries, deletions; the same
    sequence each time."""
    generator = random.Random(7)
    commands: list[tuple[str | int, ...]] = []
    for number in range(60_000 if harness.is_long else 20_000):
        key = generator.randrange(5000)
        kind = generator.randrange(8)
        text = "v" * generator.choice((3, 20, 60, 200, 1000, 5000))
        commands.append([
            ("SET", f"string:{key}", text),
            ("APPEND", f"string:{key}", text[:300]),
            ("RPUSH", f"list:{key % 300}", text[:500], number),
            ("HSET", f"hash:{key % 500}", f"field{number % 200}", text[:200]),
            ("SADD", f"set:{key % 400}", number, key),
            ("ZADD", f"sorted:{key % 300}", number, f"member{key}"),
            ("DEL", f"string:{key}"),
            ("LTRIM", f"list:{key % 300}", 0, 400),
        ][kind])
    for begin in range(0, len(commands), 500):  # Pipelined, to avoid a round trip each.
        batch = commands[begin:begin + 500]
        for command in batch:
            client.send(*command)
        for _ in batch:
            client.read()


def work_on(side: Side, folder: Path) -> str:
    """The digest of the contents, which must stay the same in all later steps."""
    work = folder / side.name.replace(" ", "-")
    work.mkdir()
    # Debian's redis-server and redis-check-rdb are one binary, which behaves by the name that
    # starts it.
    binary = shutil.which("redis-server")
    if binary is None:
        (work / "redis-server").symlink_to(shutil.which("redis-check-rdb")
                                           or "/usr/bin/redis-check-rdb")
        binary = str(work / "redis-server")
    # The socket is in the folder, because another program may take a free port before the server
    # does.
    path = work / "socket"
    command = [binary, "--port", 0, "--unixsocket", path, "--save", "", "--appendonly", "no",
               "--enable-debug-command", "yes", "--io-threads", "2", "--dir", work]
    with server(side, command, folder=work, program="redis-server") as process:
        client = connect(path, process)
        # Debian's redis links jemalloc without a prefix, so the preload must win over it.
        libraries = mapped_libraries(int(client.ask("INFO", "server").split("process_id:")[1]
                                         .split()[0]))
        if ("libloam.so" in libraries) != side.is_loam:
            raise Failure(f"{side.name}: redis-server has mapped {sorted(libraries)}")
        fill(client)
        before = client.ask("DEBUG", "DIGEST")
        if set(before) == {"0"}:
            raise Failure("redis-server is empty")
        run(side, ["redis-benchmark", "-s", path, "--dbnum", 1, "-q", "-n",
                   60000 if harness.is_long else 15000, "-r", 20000,
                   "-d", 400, "-P", 16, "-c", 20, "--threads", 2, "-t",
                   "set,get,incr,lpush,rpop,sadd,hset,zadd,mset"], folder=work, timeout=900)
        client.ask("SELECT", 1)
        if int(client.ask("DBSIZE")) < 1000:
            raise Failure("redis-benchmark left no keys")
        client.ask("BGSAVE")  # A forked child writes while the parent changes shared memory.
        client.ask("FLUSHDB")
        client.ask("SELECT", 0)
        wait_for_save(client)
        check_same(side, before, client.ask("DEBUG", "DIGEST"), "redis-benchmark and BGSAVE")
        client.ask("DEBUG", "RELOAD")
        check_same(side, before, client.ask("DEBUG", "DIGEST"), "a reload")
        client.ask("MEMORY", "PURGE")
        client.send("SHUTDOWN", "NOSAVE")
        if process.wait(timeout=300) != 0:
            raise Failure(f"{side.name}: redis-server ended with status {process.returncode}")
    return before


def check_same(side: Side, before: str, after: str, what: str) -> None:
    if before != after:
        raise Failure(f"{side.name}: the contents changed over {what}: {before} and {after}")


def wait_for_save(client: Client) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if "rdb_bgsave_in_progress:0" in client.ask("INFO", "persistence"):
            if "rdb_last_bgsave_status:ok" not in client.ask("INFO", "persistence"):
                raise Failure("the background save failed")
            return
        time.sleep(0.05)
    raise Failure("the background save did not end within five minutes")


def redis(system: Side, loam: Side, folder: Path) -> str:
    expect_equal("the digest of redis-server's contents", work_on(system, folder),
                 work_on(loam, folder))
    return "served redis-benchmark; contents equal before, after a save in a child, and reloaded"
