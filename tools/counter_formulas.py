"""Reads, orders and computes the formulas of formats/counters.toml, which also says what a formula
may have. tool/loam-format/src/counters/formula.rs does the same for the tool.
"""
import re

LARGEST = 2**64 - 1
# of every table with a lock
LOCK_FIELDS = {"lock_acquisitions", "lock_contentions", "lock_refusals"}
TOKEN = re.compile(r"\s*(\d+|[a-z][a-z0-9_]*|[-+*/().,?\[\]])")


class FormulaError(Exception):
    """The text is no formula."""


def tokens(text):
    found, at = [], 0
    while at < len(text.rstrip()):
        match = TOKEN.match(text, at)
        if match is None:
            raise FormulaError(f"`{text}` is wrong at `{text[at:]}`")
        found.append(match.group(1))
        at = match.end()
    return found


class Parser:
    """Yields nested tuples: ("+", a, b), ("?", a), ("sum", table, a), ("field", table, name,
    index), ("name", id), 7."""

    def __init__(self, text, declared):
        self.text, self.declared, self.rest = text, declared, tokens(text)
        self.records = {table["name"] for table in declared["table"] if table["kind"] == "record"}
        self.locked = {table["name"] for table in declared["table"] if table.get("lock")}
        self.names = {entry["id"] for entry in declared["counter"] + declared["quantity"]}

    def fields(self, table):
        own = {info["name"] for info in self.declared["fields"].get(table, [])}
        return own | (LOCK_FIELDS if table in self.locked else set())

    def wrong(self, what):
        return FormulaError(f"`{self.text}` is wrong at `{' '.join(self.rest)}`: {what} is wanted")

    def takes(self, mark):
        if self.rest[:1] == [mark]:
            self.rest.pop(0)
            return True
        return False

    def wants(self, mark):
        if not self.takes(mark):
            raise self.wrong(f"`{mark}`")

    def formula(self):
        found = self.whole()
        if self.takes("/"):
            found = ("/", found, self.whole())
        if self.rest:
            raise self.wrong("an operator")
        return found

    def whole(self):
        found = self.term()
        while self.rest[:1] in (["+"], ["-"]):
            found = (self.rest.pop(0), found, self.term())
        return found

    def term(self):
        found = self.part()
        while self.takes("*"):
            found = ("*", found, self.part())
        return found

    def part(self):
        found = self.single()
        return ("?", found) if self.takes("?") else found

    def single(self):
        if self.takes("("):
            found = self.whole()
            self.wants(")")
            return found
        if not self.rest or not self.rest[0][0].isalnum():
            raise self.wrong("a number, a name or `(`")
        word = self.rest.pop(0)
        if word.isdigit():
            return int(word)
        if word == "sum":
            of = self.single()
            many = {table for table in tables_of(of) if table not in self.records}
            if len(many) != 1:
                raise self.wrong("a sum over the records of one table")
            return ("sum", many.pop(), of)
        if word == "max":
            self.wants("(")
            one = self.whole()
            self.wants(",")
            two = self.whole()
            self.wants(")")
            return ("max", one, two)
        if self.takes("."):
            field = self.rest.pop(0) if self.rest else ""
            if field not in self.fields(word):
                raise FormulaError(f"`{self.text}`: no table has {word}.{field}")
            index = None
            if self.takes("["):
                index = int(self.rest.pop(0))
                self.wants("]")
            return ("field", word, field, index)
        if word not in self.names:
            raise FormulaError(f"`{self.text}`: `{word}` is no counter and no quantity")
        return ("name", word)


def parts_of(formula):
    """The formula and all of its parts."""
    yield formula
    if isinstance(formula, tuple):
        for part in formula[1:]:
            if isinstance(part, (tuple, int)):
                yield from parts_of(part)


def tables_of(formula):
    return {part[1] for part in parts_of(formula) if isinstance(part, tuple) and part[0] == "field"}


def names_of(formula):
    return {part[1] for part in parts_of(formula) if isinstance(part, tuple) and part[0] == "name"}


def of_process(declared):
    """{id: formula} of the quantities and of the process's counters, each behind those that it
    needs."""
    texts = {quantity["id"]: quantity["derive"] for quantity in declared["quantity"]}
    for counter in declared["counter"]:
        text = counter.get("derive") if counter["scope"] == "process" else counter.get("of_process")
        if text is not None:
            texts[counter["id"]] = text
    rest = {name: Parser(text, declared).formula() for name, text in texts.items()}
    ordered = {}
    while rest:
        free = [name for name, formula in rest.items() if not names_of(formula) & rest.keys()]
        if not free:
            raise FormulaError(f"each of these needs another: {', '.join(rest)}")
        for name in free:
            ordered[name] = rest.pop(name)
    return ordered


def of_scope(declared, scope):
    """{id: formula} of the counters of a scope, in their order."""
    return {counter["id"]: Parser(counter["derive"], declared).formula()
            for counter in declared["counter"]
            if counter["scope"] == scope and "derive" in counter}


def value(formula, known, records, row=None):
    """The number, or None if it is not known. `known`: counters; `records`: {table: [{field:
    value}]}; `row`: the record that its table's name means, as (table, record)."""
    if isinstance(formula, int):
        return formula
    kind = formula[0]
    if kind == "name":
        return known.get(formula[1])
    if kind == "field":
        _, table, field, index = formula
        if row is not None and row[0] == table:
            record = row[1]
        else:
            record = (records.get(table) or [{}])[0]
        found = record.get(field)
        return found if found is None or index is None else found[index]
    if kind == "?":
        return value(formula[1], known, records, row) or 0
    if kind == "sum":
        rows = records.get(formula[1])
        parts = None if rows is None else [value(formula[2], known, records, (formula[1], one))
                                           for one in rows]
        return None if parts is None or None in parts else min(sum(parts), LARGEST)
    one, two = (value(part, known, records, row) for part in formula[1:])
    if one is None or two is None:
        return None
    if kind == "/":
        return one / two if two else None
    whole = {"+": one + two, "-": one - two, "*": one * two, "max": max(one, two)}[kind]
    return min(max(whole, 0), LARGEST)
