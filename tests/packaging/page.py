"""The commands that a document tells its readers to type, so that the tests type the same."""
from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
INSTALL = "docs/install.md"


def blocks(document: str, heading: str, language: str = "") -> list[str]:
    """The fenced blocks of a section, in order."""
    text = (ROOT / document).read_text()
    begin = re.search(rf"^(#+) {re.escape(heading)}$", text, re.M)
    if not begin:
        raise SystemExit(f"{document} has no heading '{heading}'; the test that uses its lines "
                         f"must follow it")
    end = re.search(rf"^#{{1,{len(begin[1])}}} ", text[begin.end():], re.M)
    section = text[begin.end():][: end.start() if end else None]
    return [match[2] for match in re.finditer(r"^```(\S*)\n(.*?)^```$", section, re.M | re.S)
            if match[1] == language]


def lines(text: str) -> set[str]:
    """The lines of a block that a reader types, without comments after a `#`."""
    return {line.split(" #")[0].strip() for line in text.splitlines() if line.strip()}


def block(document: str, heading: str, language: str = "", number: int = 0, **replaced: str) -> str:
    """One of the blocks, with the words that stand for the reader's own replaced. Each word must be
    there."""
    found = blocks(document, heading, language)
    if len(found) <= number:
        raise SystemExit(f"{document}, '{heading}': {len(found)} blocks of '{language}', and block "
                         f"{number} is wanted")
    text = found[number]
    for word, value in replaced.items():
        if not re.search(rf"\b{word}\b", text):
            raise SystemExit(f"{document}, '{heading}': the block has no '{word}':\n{text}")
        text = re.sub(rf"\b{word}\b", lambda _: value, text)
    return text
