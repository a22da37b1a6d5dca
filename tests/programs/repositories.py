"""git makes a repository of some thousand commits, repacks it with threads and checks it."""
from __future__ import annotations

import random
from pathlib import Path

import harness
from harness import Failure, Side, expect_equal, run

LONG_COMMITS, COMMITS = 4000, 1600


def commits() -> int:
    return LONG_COMMITS if harness.is_long else COMMITS


def write_history(path: Path) -> None:
    """A fast-import stream: files that grow line by line, renames, deletions, a merge now and
    then."""
    generator = random.Random(20)
    files: dict[str, list[str]] = {}
    words = [f"word{number:04d}" for number in range(3000)]
    with open(path, "wb") as stream:
        def data(text: str) -> None:
            raw = text.encode()
            stream.write(b"data %d\n%s\n" % (len(raw), raw))

        for number in range(1, commits() + 1):
            stream.write(b"commit refs/heads/main\nmark :%d\n" % number)
            stream.write(b"committer Tester <tester@example.org> %d +0000\n"
                         % (1_600_000_000 + number * 60))
            data(f"Change {number}\n\n{' '.join(generator.choices(words, k=30))}\n")
            if number > 1:
                stream.write(b"from :%d\n" % (number - 1))
                if number % 50 == 0:
                    stream.write(b"merge :%d\n" % (number - generator.randint(2, 40)))
            for _ in range(generator.randint(1, 4)):
                if not files or generator.random() < 0.15:
                    name = f"dir{generator.randrange(40)}/file{len(files)}.txt"
                    files[name] = [" ".join(generator.choices(words, k=8)) for _ in range(60)]
                else:
                    name = generator.choice(sorted(files))
                    lines = files[name]
                    lines.insert(generator.randrange(len(lines) + 1),
                                 " ".join(generator.choices(words, k=8)))
                    if len(lines) > 20:
                        del lines[generator.randrange(len(lines))]
                stream.write(b"M 100644 inline %s\n" % name.encode())
                data("\n".join(files[name]) + "\n")
            stream.write(b"\n")
        stream.write(b"done\n")


def work_on(side: Side, folder: Path, history: Path) -> str:
    """All compared results, as text. Pack files are not compared: with threads, chance decides
    which delta is found first."""
    work = folder / side.name.replace(" ", "-")
    work.mkdir()
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
                   "HOME": str(work)}

    def git(*arguments: str, stdin: Path | None = None) -> str:
        return run(side, ["git", *arguments], folder=work, timeout=900, stdin=stdin,
                   environment=environment).output

    git("init", "--quiet", "--bare", "--initial-branch=main", ".")
    git("fast-import", "--quiet", "--done", stdin=history)
    git("-c", "pack.threads=2", "repack", "-a", "-d", "-f", "--window=30", "--depth=50", "--quiet")
    git("fsck", "--full", "--strict", "--no-progress")
    packs = sorted((work / "objects" / "pack").glob("*.idx"))
    if len(packs) != 1:
        raise Failure(f"{side.name}: one pack expected after repack -ad, found {len(packs)}")
    git("verify-pack", str(packs[0]))
    return "\n".join([
        git("cat-file", "--batch-all-objects", "--batch-check"),
        git("log", "--format=%H %T %P %s", "--stat", "-n", "600", "main"),
        git("diff", "--patience", "main~1500", "main"),
        git("blame", "--line-porcelain", "main", "--", first_file(git)),
        git("shortlog", "-s", "main"),
    ])


def first_file(git) -> str:
    return git("ls-tree", "-r", "--name-only", "main").splitlines()[0]


def git(system: Side, loam: Side, folder: Path) -> str:
    history = folder / "history"
    write_history(history)
    expected = work_on(system, folder, history)
    found = work_on(loam, folder, history)
    expect_equal("what git says of the repository", expected, found)
    objects = sum(1 for line in found.splitlines() if line.split()[1:2] in
                  (["blob"], ["tree"], ["commit"]))
    if objects < 3 * commits():
        raise Failure(f"only {objects} objects in the repository")
    return f"{commits()} commits, {objects} objects repacked, verified and equal"
