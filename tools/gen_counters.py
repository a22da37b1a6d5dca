#!/usr/bin/env python3
"""Writes all files that follow from formats/counters.toml: the fields of the structs in
include/loam/stats.h, the table in src/counters/counter_list.h, the library's formulas in
src/counters/derived.h, the tool's names in tool/loam-format/src/counters/ids.rs, and the tables of
docs/counters.md. For Performance Monitor of Windows it writes packaging/loam_counters.man, which
registers the counters, and its strings, loam_counters.rc. Formulas are read too. One that is
malformed, or names something unknown, is an error.

    tools/gen_counters.py           writes all
    tools/gen_counters.py --check   exits with 1 if one is stale
"""
import re
import sys
import textwrap
import tomllib
from pathlib import Path
from xml.sax.saxutils import quoteattr

import counter_formulas

ROOT = Path(__file__).resolve().parent.parent
KEYS = {"id", "unit", "kind", "scope", "source", "meaning", "derive", "of_process", "found",
        "perfmon", "openmetrics", "in_process"}
KINDS, SCOPES = ["gauge", "counter", "ratio"], ["process", "heap", "class", "lock"]
SOURCES = ["live", "sampling", "system"]
PERFMON = 24  # the counters of Perfmon's Heap object


def load():
    declared = tomllib.loads((ROOT / "formats/counters.toml").read_text())
    errors, ids = [], set()
    for counter in declared["counter"] + declared["histogram"]:
        name = counter.get("id", "?")
        counter.setdefault("source", "live")
        counter.setdefault("kind", "histogram")
        if unknown := counter.keys() - KEYS:
            errors.append(f"{name}: unknown keys {sorted(unknown)}")
        if name in ids or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            errors.append(f"{name}: declared twice, or no id")
        ids.add(name)
        if (counter["kind"] not in KINDS + ["histogram"] or counter["scope"] not in SCOPES
                or counter["source"] not in SOURCES):
            errors.append(f"{name}: kind, scope or source is none of the declared ones")
        if ("derive" in counter) == ("found" in counter):
            errors.append(f"{name}: it has either a formula (`derive`) or words (`found`)")
        if "of_process" in counter and counter["scope"] != "heap":
            errors.append(f"{name}: `of_process` is for counters of heaps")
    try:
        counter_formulas.of_process(declared)
        for scope in SCOPES:
            counter_formulas.of_scope(declared, scope)
    except counter_formulas.FormulaError as error:
        errors.append(str(error))
    perfmon = [counter["perfmon"] for counter in declared["counter"] if "perfmon" in counter]
    if len(perfmon) != PERFMON or len(set(perfmon)) != PERFMON:
        errors.append(f"{len(set(perfmon))} of Perfmon's {PERFMON} counters are there")
    if errors:
        sys.exit("formats/counters.toml:\n" + "\n".join(errors))
    return declared


GENERATED = ("// Generated from formats/counters.toml by tools/gen_counters.py; do not edit. "
             "A test compares.\n")


def camel(name):
    return "k" + "".join(part.capitalize() for part in name.split("_"))


def members(declared, scopes):
    return [counter for counter in declared["counter"]
            if counter["scope"] in scopes and counter.get("in_process", True)]


def struct_fields(counters, drop=""):
    lines = []
    for counter in counters:
        note = "" if counter["source"] != "sampling" else " [sampling]"
        kind = "double" if counter["kind"] == "ratio" else "uint64_t"
        # The end of the comment stays with the last word.
        comment = textwrap.wrap(f"{counter['unit']}: {counter['meaning']}{note}\u00a0*/", 100,
                                initial_indent="  /** ", subsequent_indent="   *  ",
                                break_long_words=False, break_on_hyphens=False)
        lines += [line.replace("\u00a0", " ") for line in comment]
        lines.append(f"  {kind} {counter['id'].removeprefix(drop)};")
    return "\n".join(lines)


def list_header(declared):
    room = {key: max(len(counter[key].encode()) for counter in declared["counter"]) + 1
            for key in ("id", "unit", "meaning")}
    rows = []
    for counter in declared["counter"]:
        inside = "true" if counter.get("in_process", True) else "false"
        rows.append(f'    {{"{counter["id"]}", "{counter["unit"]}",\n     "{counter["meaning"]}",\n'
                    f'     CounterKind::{camel(counter["kind"])}, '
                    f'CounterScope::{camel(counter["scope"])}, '
                    f'CounterSource::{camel(counter["source"])}, {inside}}},')
    names = "\n".join(f"  {camel(counter['id'])}," for counter in declared["counter"])
    return GENERATED + f"""#pragma once

#include "base/config.h"

namespace loam::stats {{

enum class CounterKind : uint8_t {{ kGauge, kCounter, kRatio }};
enum class CounterScope : uint8_t {{ kProcess, kHeap, kClass, kLock }};
enum class CounterSource : uint8_t {{ kLive, kSampling, kSystem }};

/// Texts are arrays, not pointers: those would have to be relocated in every program's start.
struct CounterInfo {{
  char id[{room["id"]}];
  char unit[{room["unit"]}];
  char meaning[{room["meaning"]}];
  CounterKind kind;
  CounterScope scope;
  CounterSource source;
  bool in_process;  ///< loam_stats() has it; otherwise only other processes can tell
}};

/// The counters in the order of the list.
enum CounterId : unsigned {{
{names}
  kCounterCount
}};

// clang-format off
inline constexpr CounterInfo kCounters[kCounterCount] = {{
{chr(10).join(rows)}
}};
// clang-format on

}}  // namespace loam::stats
"""


def cxx(formula):
    """A formula of counters alone, in C++; None if it needs a table, a quantity, or a counter that
    only other processes know."""
    if isinstance(formula, int):
        return str(formula)
    kind, *parts = formula
    if kind == "name":
        return f"v[{camel(parts[0])}]"
    made = [cxx(part) for part in parts] if kind in ("+", "-", "/", "?") else [None]
    if None in made:
        return None
    return {"+": "plus", "-": "minus", "/": "ratio",
            "?": "known_or_0"}[kind] + f"({', '.join(made)})"


def derived_header(declared):
    inside = {counter["id"] for counter in declared["counter"] if counter.get("in_process", True)}

    def body(formulas):
        lines = []
        for name, formula in formulas.items():
            if name in inside and counter_formulas.names_of(formula) <= inside and (text := cxx(
                formula)):
                lines.append(f"  v[{camel(name)}] = {text};")
        return "\n".join(lines)

    return GENERATED + f"""#pragma once

#include <cstring>

#include "counters/stats.h"

namespace loam::stats {{

// What is made of an unknown counter is unknown.

inline uint64_t known_or_0(uint64_t a) {{ return a == kUnknown ? 0 : a; }}

inline uint64_t plus(uint64_t a, uint64_t b) {{
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? kUnknown : sum;
}}

/// 0 where `b` is larger: figures are read one after the other, while the program runs.
inline uint64_t minus(uint64_t a, uint64_t b) {{
  if (a == kUnknown || b == kUnknown) return kUnknown;
  return a > b ? a - b : 0;
}}

/// The bits of a double; of 0 / 0 those of 0.
inline uint64_t ratio(uint64_t part, uint64_t whole) {{
  if (part == kUnknown || whole == kUnknown) return kUnknown;
  const double value = whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}}

// clang-format off
/// Counters of a heap that are made of other counters alone.
inline void derive_heap(uint64_t* v) {{
{body(counter_formulas.of_scope(declared, "heap"))}
}}

/// The same of the process. pre: derive_heap() has run for the sum of its heaps
inline void derive_process(uint64_t* v) {{
{body(counter_formulas.of_process(declared))}
}}
// clang-format on

}}  // namespace loam::stats
"""


def rust_ids(declared):
    lines = []
    for counter in declared["counter"] + declared["histogram"]:
        lines += textwrap.wrap(f"{counter['unit']}: {counter['meaning']}", 96,
                               initial_indent="/// ",
                               subsequent_indent="/// ", break_long_words=False)
        lines.append(f'pub const {counter["id"].upper()}: &str = "{counter["id"]}";')
    return GENERATED + """\
//! The ids of the counters and distributions: a slip of the pen does not compile.

""" + "\n".join(lines) + "\n"


def cell(text):
    return text.replace("|", "\\|")


def tables(declared):
    text = []
    for title, scopes in (("Of a heap, and of the process as the sum", ["heap"]),
                          ("Of the process", ["process"]), ("Of a size class", ["class"]),
                          ("Of a lock", ["lock"])):
        text.append(f"\n### {title}\n\n| Counter | Unit | Meaning |\n|---|---|---|")
        for counter in declared["counter"]:
            if counter["scope"] in scopes:
                mark = {"live": "", "sampling": " *(sampling)*",
                        "system": " *(system)*"}[counter["source"]]
                total = ", grows" if counter["kind"] == "counter" else ""
                text.append(f"| `{counter['id']}` | {counter['unit']}{total} | "
                            f"{cell(counter['meaning'])}{mark} |")
    text.append("\n### Distributions\n\n| Name | Unit | Meaning |\n|---|---|---|")
    for counter in declared["histogram"]:
        mark = " *(sampling)*" if counter["source"] == "sampling" else ""
        text.append(f"| `{counter['id']}` | {counter['unit']} | {cell(counter['meaning'])}{mark} |")
    text.append("\n### Perfmon's Heap object\n\n| Perfmon | Here |\n|---|---|")
    for counter in declared["counter"]:
        if "perfmon" in counter:
            rate = ", per second" if counter["kind"] == "counter" else ""
            text.append(f"| {counter['perfmon']} | `{counter['id']}`{rate} |")
    return "\n".join(text) + "\n\n"


def monitor_id(name):
    """Does what shown::id_of() in src/counters/shown_counters.h does."""
    number = 2166136261
    for byte in name.encode():
        number = (number ^ byte) * 16777619 & 0xffffffff
    return number & 0x7fffffff


def monitored(declared):
    """The counters that Performance Monitor shows: (id, name there, description, counter)."""
    found = []
    for counter in members(declared, ["heap", "process"]):
        # Perfmon does not add "/sec" to a name, so the name of a rate says what it is a rate of.
        name = counter["id"].replace("_", " ").capitalize()
        if counter["kind"] == "counter":
            name += "/sec"
        elif counter["kind"] == "ratio":
            name = "% " + name
        found.append((monitor_id(counter["id"]), name, f"{counter['unit']}: {counter['meaning']}",
                      counter))
    if len({number for number, *_ in found}) != len(found):
        sys.exit("formats/counters.toml: two names have one number; call the new one otherwise")
    return found


def guid_of(name):
    """Does what src/os/windows_publish.cpp does."""
    text = (ROOT / "src/os/windows_publish.cpp").read_text()
    words = re.findall(r"0x([0-9a-f]+)", text.split(f"constexpr GUID {name} = ")[1].split(";")[0])
    return f"{{{words[0]}-{words[1]}-{words[2]}-{''.join(words[3:5])}-{''.join(words[5:])}}}"


MONITOR_NAMES = 101  # the first string's number in the resource


def manifest(declared):
    rows = []
    for place, (number, name, text, counter) in enumerate(monitored(declared)):
        first = MONITOR_NAMES + 2 * (place + 1)
        grows = counter["kind"] == "counter"
        kind = "perf_counter_bulk_count" if grows else "perf_counter_large_rawcount"
        rows.append(
            f"""          <counter id="{number}" uri="Loam.Heap.{counter['id']}" """
            f"""name={quoteattr(name)} nameID="{first}"
              description={quoteattr(text)} descriptionID="{first + 1}"
              type="{kind}" detailLevel="standard" defaultScale="0">
            <counterAttributes><counterAttribute name="reference"/></counterAttributes>
          </counter>
""")
    described = "Heaps of programs that use Loam with LOAM_PUBLISH=1"
    provider = 'callback="custom" applicationIdentity="loam.dll" providerType="userMode"'
    return f"""<?xml version="1.0" encoding="utf-8"?>
<!-- Generated from formats/counters.toml by tools/gen_counters.py; do not edit. A test compares.
     Register with administrator's rights:  lodctr /m:loam_counters.man "FOLDER OF loam.dll"
     docs/windows.md says more. -->
<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events">
  <instrumentation>
    <counters xmlns="http://schemas.microsoft.com/win/2005/12/counters" schemaVersion="1.1">
      <provider {provider} symbol="Loam"
          providerName="Loam" providerGuid="{guid_of('kProvider')}">
        <counterSet guid="{guid_of('kCounterSet')}" uri="Loam.Heap" symbol="LoamHeap"
            name="Loam Heap" nameID="{MONITOR_NAMES}" description="{described}"
            descriptionID="{MONITOR_NAMES + 1}" instances="multiple">
{"".join(rows)}        </counterSet>
      </provider>
    </counters>
  </instrumentation>
</instrumentationManifest>
"""


def resource(declared):
    strings = ["Loam Heap", "Heaps of programs that use Loam with LOAM_PUBLISH=1"]
    for _, name, text, _ in monitored(declared):
        strings += [name, text]
    rows = "\n".join('  {} "{}"'.format(MONITOR_NAMES + place, text.replace('"', '""'))
                     for place, text in enumerate(strings))
    return GENERATED + f"""// The names that loam_counters.man registers. A part of loam.dll.
STRINGTABLE
BEGIN
{rows}
END
"""


def between(path, begin, end, new):
    text = (ROOT / path).read_text()
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start] + new + text[stop:]


def render():
    declared = load()
    fields = "\n" + struct_fields(members(declared, ["heap", "process"])) + "\n  "
    header = between("include/loam/stats.h", "/* generated: heap and process */",
                     "/* end: heap and process */",
                     fields)
    (class_begin, class_end) = "/* generated: class */", "/* end: class */"
    start, stop = header.index(class_begin) + len(class_begin), header.index(class_end)
    fields = "\n" + struct_fields(members(declared, ["class"]), "class_") + "\n  "
    header = header[:start] + fields + header[stop:]
    return {"include/loam/stats.h": header, "src/counters/counter_list.h": list_header(declared),
            "src/counters/derived.h": derived_header(declared),
            "tool/loam-format/src/counters/ids.rs": rust_ids(declared),
            "packaging/loam_counters.man": manifest(declared),
            "packaging/loam_counters.rc": resource(declared),
            "docs/counters.md": between("docs/counters.md",
                                        "<!-- generated from formats/counters.toml -->\n",
                                        "<!-- end -->", tables(declared))}


def main():
    stale = 0
    for path, text in render().items():
        target = ROOT / path
        if target.exists() and target.read_text() == text:
            continue
        if sys.argv[1:] == ["--check"]:
            print(f"{path} is stale: run tools/gen_counters.py", file=sys.stderr)
            stale = 1
        else:
            target.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
