"""Finds the names that the C++ sources declare in each class, enumeration or namespace. It knows
only as much of the language as checks of names in prose need."""
from __future__ import annotations

import re

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)
WORD = re.compile(r"[A-Za-z_]\w*")
SCOPE = re.compile(
    r"\b(namespace|class|struct|union|enum(?:\s+(?:class|struct))?)\s+"
    r"(?:alignas\([^)]*\)\s*|LOAM_\w+(?:\([^)]*\))?\s+|\[\[[^\]]*\]\]\s*)*"
    r"((?:\w+::)*\w+)\s*(?:<[^{]*>)?\s*(?:final\s*)?(?::(?!:)([^{]*))?$")
# A scope without a name declares its names in the outer scope. (Literals are blanked.)
TRANSPARENT = re.compile(r"\b(?:namespace|extern|struct|union|enum)\s*(?::[^{]*)?$")
ALIAS = re.compile(r"\busing\s+(\w+)\s*=|\btypedef\b[^;{}]*\b(\w+)\s*;|\bnamespace\s+(\w+)\s*=")


def comments(text: str) -> list[tuple[int, str]]:
    """Every comment with the number of its first line."""
    return [(text.count("\n", 0, match.start()) + 1, match.group(0))
            for match in COMMENT_OR_LITERAL.finditer(text) if match.group(0)[0] == "/"]


def code(text: str) -> str:
    """The text without comments, contents of literals, and preprocessor lines."""
    return PREPROCESSOR.sub(" ", COMMENT_OR_LITERAL.sub(" ", text))


class Declarations:
    def __init__(self) -> None:
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        self.aliases: set[str] = set()

    def add(self, text: str) -> None:
        text = code(text)
        for found in ALIAS.findall(text):
            self.aliases |= set(filter(None, found))
        # The innermost named scope at each depth; None within the body of a function.
        scopes: list[str | None] = [None]
        start = 0
        for delimiter in re.finditer(r"[{};]", text):
            head = text[start:delimiter.start()]
            start = delimiter.end()
            if scopes[-1] is not None:
                self.members[scopes[-1]] |= set(WORD.findall(head))
            if delimiter.group() == "{":
                scopes.append(self._open(head, scopes[-1]))
            elif delimiter.group() == "}" and len(scopes) > 1:
                scopes.pop()

    def _open(self, head: str, outer: str | None) -> str | None:
        head = head.strip()
        if TRANSPARENT.search(head):
            return outer
        scope = SCOPE.search(head)
        if scope is None:
            return None
        *around, name = scope.group(2).split("::")
        for part, inner in zip(around, [*around[1:], name]):
            self.members.setdefault(part, set()).add(inner)
        self.members.setdefault(name, set())
        if outer is not None and scope.group(1) == "enum":
            # The outer scope has the enumerators too. Each word is added where it is looked up.
            self.bases.setdefault(outer, set()).add(name)
        if scope.group(3) and scope.group(1) != "enum":
            self.bases.setdefault(name, set()).update(WORD.findall(scope.group(3)))
        return name

    def knows(self, scope: str) -> bool:
        return scope in self.members and scope not in self.aliases

    def declares(self, scope: str, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether it is a name of the scope, or of a base of the scope. True for a scope that is
        only another name of something."""
        if scope in self.aliases or name.removeprefix("~") == scope:
            return True
        if scope in seen:
            return False
        return (name in self.members.get(scope, ())
                or any(base in self.aliases or self.declares(base, name, seen | {scope})
                       for base in self.bases.get(scope, ())))

    def undeclared(self, qualified: str) -> str | None:
        """Describes the first step of `a::b::c` that is wrong; None if all steps are right or
        unknown."""
        parts = qualified.removeprefix("::").split("::")
        for scope, name in zip(parts, parts[1:]):
            if self.knows(scope) and not self.declares(scope, name):
                return f"{scope} declares no {name}"
        return None
