"""Reads Loam's counters from a process or an image, as formats/counters.md says. It is a second
opinion beside the library's own figures and the tool's, and is slow and simple on purpose. Formulas
of the list are computed from it (tools/counter_formulas.py). What the list has only in words is
written here.
"""
import os
import struct
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import counter_formulas  # noqa: E402  not beside this file

DECLARED = tomllib.loads((ROOT / "formats/counters.toml").read_text())
OF_PROCESS = counter_formulas.of_process(DECLARED)
OF_CLASS = counter_formulas.of_scope(DECLARED, "class")
COUNTERS = {counter["id"]: counter for counter in DECLARED["counter"]}

RECORD, ARRAY, LIST, NESTED, POINTED, GROUP, CHAIN = range(1, 8)
NONE = 0xFFFFFFFF


class Unreadable(Exception):
    """An address that cannot be read."""


class Process:
    """The memory of a process, with a cache of the read parts."""

    def __init__(self, pid):
        self.memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        self.pid = pid
        self.pieces = {}

    def read(self, address, length):
        try:
            data = os.pread(self.memory, length, address)
        except (OSError, OverflowError) as error:
            raise Unreadable(hex(address)) from error
        if len(data) != length:
            raise Unreadable(hex(address))
        self.pieces[address] = data
        return data

    def block(self, symbol="loam_counters"):
        """The run-time address of the symbol."""
        with open(f"/proc/{self.pid}/maps") as maps:
            for line in maps:
                fields = line.split(maxsplit=5)
                if len(fields) < 6 or fields[2] != "00000000" or not fields[5].startswith("/"):
                    continue
                value = find_symbol(fields[5].strip(), symbol)
                if value is not None:
                    position_free, address = value
                    return address + (int(fields[0].split("-")[0], 16) if position_free else 0)
        return None


class Image:
    """An image file: a copy of the memory of a process."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        (magic, version, header, generation, self.address, self.pid, self.taken_ns, count, size,
         total) = struct.unpack_from("<8sIIQQQQIIQ", self.data)
        assert magic == b"LOAMIMAG" and version == 1 and generation % 2 == 0 and total == len(
            self.data)
        self.segments = [struct.unpack_from("<QQQ", self.data, header + i * size)
                         for i in range(count)]

    def read(self, address, length):
        for begin, size, offset in self.segments:
            if begin <= address and address + length <= begin + size:
                return self.data[offset + address - begin:offset + address - begin + length]
        raise Unreadable(hex(address))

    def block(self):
        return self.address


def write_image(path, pieces, address, pid, now_ns):
    """Joins the parts that a reader read into pieces of an image."""
    joined = []
    for begin in sorted(pieces):
        data = pieces[begin]
        if joined and begin <= joined[-1][0] + len(joined[-1][1]):
            before, old = joined[-1]
            keep = old[:begin - before] + data
            joined[-1] = (before, keep + old[len(keep):])
        else:
            joined.append((begin, data))
    at = 64 + 24 * len(joined)
    entries, body = b"", b""
    for begin, data in joined:
        entries += struct.pack("<QQQ", begin, len(data), at + len(body))
        body += data
    header = struct.pack("<8sIIQQQQIIQ", b"LOAMIMAG", 1, 64, 0, address, pid, now_ns, len(joined),
                         24, at + len(body))
    with open(path, "wb") as out:
        out.write(header + entries + body)


def find_symbol(path, wanted):
    """(position independent?, value) of a symbol of a 64-bit ELF file, or None."""
    with open(path, "rb") as file:
        elf = file.read()
    if elf[:5] != b"\x7fELF\x02":
        return None
    kind, = struct.unpack_from("<H", elf, 16)
    sections, = struct.unpack_from("<Q", elf, 40)
    size, count = struct.unpack_from("<HH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, sections + i * size) for i in range(count)]
    for header in headers:
        if header[1] not in (2, 11):  # SHT_SYMTAB, SHT_DYNSYM
            continue
        names = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
            if section != 0 and elf[names + name:names + name + len(wanted)
                                    + 1] == wanted.encode() + b"\0":
                return kind == 3, value
    return None


# Fields that are newer than the golden images. The libraries that wrote those images did not have
# what these fields count. Any other missing field is a mistake.
RUN_COUNTS = {f"{what}_{how}": 0 for what in ("runs", "run_pages", "run_requested")
              for how in ("taken", "given")}
LATER_TABLES = {"page_shard", "more_bin", "split_class", "idle_mapping"}
LATER = {"registry": RUN_COUNTS | {"pushed": None}, "constant": {"frees_per_look": None},
         "cache": RUN_COUNTS | {"run_pages_held": 0, "pushed": None, "until_look": None},
         "page_heap": {"idle_mappings": 0},
         "bin": {"absent_slots": 0, "absent_pages": 0},
         "region": {"records_purged": 0, "maps_purged": 0}}


class Directory:
    def __init__(self, memory, older=False):
        self.memory = memory
        self.later = LATER if older else {}
        address = memory.block()
        assert address is not None, "no loam_counters in the process"
        header = memory.read(address, 128)
        (magic, self.version, header_size, total, table_size, tables, field_size, fields, _,
         self_address,
         library) = struct.unpack_from("<8sIIIIIIIIQ32s", header)
        assert magic == b"LOAMCNTR" and self.version == 1 and self_address == address, header
        self.address = address
        self.library = library.rstrip(b"\0").decode()
        block = memory.read(address, total)
        self.tables, self.by_number = {}, []
        for i in range(tables):
            name, kind, parent, at, stride, count, link, lock, _ = struct.unpack_from(
                "<24sIIQIIIIQ", block, header_size + i * table_size)
            table = {"name": text(name), "kind": kind, "parent": parent, "address": at,
                     "stride": stride,
                     "count": count, "link": link, "lock": lock, "fields": {}}
            self.by_number.append(table)
            self.tables[table["name"]] = table
        for i in range(fields):
            name, table, offset, width, count, _ = struct.unpack_from(
                "<24sIIIIQ", block, header_size + tables * table_size + i * field_size)
            self.by_number[table]["fields"][text(name)] = (offset, width, count)

    def record(self, table, address):
        fields = table["fields"].values()
        begin = min(offset for offset, _, _ in fields)
        end = max(offset + width * count for offset, width, count in fields)
        for _ in range(64):
            data = self.memory.read(address + begin, end - begin)
            if table["lock"] == NONE or data == self.memory.read(address + begin, end - begin):
                break
        values = {"address": address} | self.later.get(table["name"], {})
        for name, (offset, width, count) in table["fields"].items():
            code = {1: "B", 2: "H", 4: "I", 8: "Q"}[width]
            found = struct.unpack_from(f"<{count}{code}", data, offset - begin)
            values[name] = found[0] if count == 1 else found
        return values

    def pointer(self, address):
        return struct.unpack("<Q", self.memory.read(address, 8))[0]

    def records(self, name, parent=None, count=None):
        """The table's records; of an inner table those of one parent. None stands for a missing
        record."""
        if name not in self.tables and self.later and name in LATER_TABLES:
            return []
        table = self.tables[name]
        kind, address = table["kind"], table["address"] + (parent["address"] if parent else 0)
        count = table["count"] if count is None else min(count, table["count"])
        if kind in (LIST, CHAIN):
            found, at, seen = [], self.pointer(address), set()
            while at != 0 and at not in seen and len(found) < count:
                seen.add(at)
                found.append(self.record(table, at))
                at = self.pointer(at + table["link"])
            return found
        if kind == GROUP:
            found = []
            for number in range(count):
                group = self.pointer(address + number // table["link"] * 8)
                found.append(self.record(table, group + number % table["link"] * table["stride"])
                             if group else None)
            return found
        if kind == POINTED:
            address = self.pointer(address)
            bits = struct.unpack("<I", self.memory.read(parent["address"] + table["link"], 4))[0]
            count = 0 if address == 0 else min(1 << bits, count)
        return [self.record(table, address + i * table["stride"]) for i in range(count)]

    def one(self, name):
        return self.records(name)[0]


def text(name):
    return name.rstrip(b"\0").decode()


def runs(words):
    """Lengths of the runs of set bits."""
    bits = "".join(format(word, "064b")[::-1] for word in words)
    return [len(run) for run in bits.split("0") if run]


def log2_bins(lengths, bins):
    found = [0] * bins
    for length in lengths:
        found[min(length.bit_length() - 1, bins - 1)] += 1
    return found


def read(memory, older=False):
    """{"counters": {...}, "classes": [...], "locks": {...}, "histograms": {...}}: what
    counters.toml derives. `older`: the memory is an image that may lack the fields in LATER."""
    d = Directory(memory, older)
    constant = d.one("constant")
    classes = d.records("class")
    last = len(classes)  # the fixed classes; in magazines, this index is for blocks in mixed spans
    classes += d.records("split_class")
    bins = d.records("bin")
    more_bins = d.records("more_bin")
    for number, more in enumerate(more_bins):
        into = bins[number // (len(more_bins) // len(bins))]
        for name, value in more.items():
            if name == "occupancy":
                into[name] = [a + b for a, b in zip(into[name], value)]
            elif name in into and name not in ("address", "lock_state"):
                into[name] += value
    caches = d.records("cache")
    magazines = [d.records("magazine", cache) for cache in caches]
    registry, pages, huge = d.one("registry"), d.one("page_heap"), d.one("huge")
    meta, sampler = d.one("metadata"), d.one("sampler")
    mixed_shards = d.records("mixed")
    mixed = {name: sum(shard[name] for shard in mixed_shards)
             for name in ("spans", "free_granules", "unbacked_pages", "taken", "given")}
    page = constant["page_bytes"]

    def held(magazine, entry=8):
        count = (magazine["head"] - magazine["base"]) // entry
        return count if magazine["head"] and 0 <= count <= constant["magazine_limit"] else 0

    waiting = sum(held(of_thread[last]) for of_thread in magazines if len(of_thread) > last)
    mixed_blocks = [sum(shard["blocks"][c] for shard in mixed_shards) for c in range(last)]
    total_mixed, prefix, shares = sum(mixed_blocks[1:]), 0, [0] * last
    for c in range(1, last):
        before = waiting * prefix // total_mixed if total_mixed else 0
        prefix += mixed_blocks[c]
        shares[c] = (waiting * prefix // total_mixed if total_mixed else 0) - before

    v = dict.fromkeys(["live_small_bytes", "live_small_blocks", "cached_bytes", "cached_blocks",
                       "largest_cache_depth", "spans", "span_free_bytes", "span_free_blocks",
                       "span_tail_bytes",
                       "unbacked_bytes", "refilled_blocks", "returned_blocks", "remote_batches",
                       "remote_blocks",
                       "queued_blocks", "set_aside_bytes", "private_records_bytes",
                       "free_list_length"], 0)
    by_class = []

    def add(c, spans, free, live, cached, absent_slots=0, absent_pages=0):
        size = classes[c]["bytes"]
        v["live_small_bytes"] += live * size
        v["live_small_blocks"] += live
        v["cached_bytes"] += cached * size
        v["cached_blocks"] += cached
        v["largest_cache_depth"] = max(v["largest_cache_depth"], cached)
        v["spans"] += spans
        v["span_free_bytes"] += free * size
        v["span_free_blocks"] += free
        v["span_tail_bytes"] += ((spans * classes[c]["pages"] - absent_pages) * page
                                 - (spans * classes[c]["slots"] - absent_slots) * size)
        v["free_list_length"] += free if size > 1024 else 0

    in_use = [c for c in range(1, len(classes)) if classes[c]["bytes"] != 0]
    for c in in_use:
        b = bins[c]
        absent = b["absent_slots"], b["absent_pages"]
        out = classes[c]["slots"] * b["spans"] - absent[0] - b["free_slots"] + (mixed_blocks[c]
                                                                                if c < last else 0)
        share = shares[c] if c < last else 0
        cached = min(sum(held(of_thread[c]) for of_thread in magazines) + b["queued"] + share, out)
        add(c, b["spans"], b["free_slots"], out - cached, cached, *absent)
        v["unbacked_bytes"] += b["unbacked_pages"] * page
        for name, raw in (("refilled_blocks", "taken"), ("returned_blocks", "given"),
                          ("queued_blocks", "queued"),
                          ("remote_batches", "remote_batches"), ("remote_blocks", "remote_blocks")):
            v[name] += b[raw]
        own = {"class": [classes[c]], "bin": [b], "constant": [constant]}
        by_class.append({name: counter_formulas.value(formula, {}, own) for name,
                         formula in OF_CLASS.items()
                         if name != "class_lock_acquisitions"}  # reading takes locks itself
                        | {"class_live_blocks": out - cached, "class_cached_blocks": cached,
                         "occupancy": list(b["occupancy"]) + [b["spans"] - sum(b["occupancy"])]})
    v["spans"] += mixed["spans"]
    v["span_free_bytes"] += mixed["free_granules"] * constant["granule_bytes"]
    v["unbacked_bytes"] += mixed["unbacked_pages"] * page
    v["refilled_blocks"] += mixed["taken"]
    v["returned_blocks"] += mixed["given"]
    locked = {name: d.one(name)
              for name in ("registry", "page_heap", "huge", "metadata", "remote_pool",
                                             "private_registry")}
    is_one = len(mixed_shards) == 1  # in images of older libraries
    locked |= {"mixed" if is_one else f"mixed-{i}": shard for i, shard in enumerate(mixed_shards)}
    locked |= {f"class-{classes[c]['bytes']}": bins[c] for c in in_use}
    shards = d.records("page_shard")
    locked |= {f"page-shard-{i}": shard for i, shard in enumerate(shards)}
    for heap in d.records("private_heap"):
        name = bytes(heap["name"]).split(b"\0")[0].decode() or f"heap-{heap['generation']}"
        locked[name] = heap
        held_by_class = [0] * last
        for cache in d.records("private_cache", heap):
            for c, magazine in enumerate(d.records("private_magazine", cache)):
                held_by_class[c] += held(magazine, constant["private_slot_bytes"])
        for c, b in enumerate(d.records("private_bin", heap, last)):
            if b is None or c == 0:
                continue
            out = classes[c]["slots"] * b["spans"] - b["free_slots"] + b["in_starters"]
            v["span_free_bytes"] -= b["in_starters"] * classes[c]["bytes"]
            add(c, b["spans"], b["free_slots"], max(out - held_by_class[c], 0), held_by_class[c])
            v["refilled_blocks"] += b["taken"]
            v["returned_blocks"] += b["given"]
        v["unbacked_bytes"] += heap["unbacked_pages"] * page
        v["set_aside_bytes"] += heap["set_aside"]
        v["spans"] += heap["starters"]
        v["span_free_bytes"] += heap.get("mixed_pages", heap["starters"]) * page
        v["private_records_bytes"] += heap["records"]

    v["cached_bytes"] += sum(cache["run_pages_held"] for cache in caches) * page
    dirty_runs, clean_runs, extents, uncommitted = [], [], [], 0
    regions = d.records("region")
    for region in regions:
        blocks = d.records("block", region)
        for extent in d.records("extent", region, region["extents"]):
            extents.append(extent)
            uncommitted += extent["committed_blocks"] < extent["block_count"]
            for block in blocks[extent["first_block"]:extent["first_block"]
                                + extent["committed_blocks"]]:
                dirty_runs += runs([a & b for a, b in zip(block["free"], block["backed"])])
                clean_runs += runs([a & ~b for a, b in zip(block["free"], block["backed"])])
    d.records("huge_block", huge)
    v["free_list_length"] += len(dirty_runs)
    v["uncommitted_ranges"] = len(clean_runs) + uncommitted
    for name in ("acquisitions", "contentions", "refusals"):
        v[f"lock_{name}"] = sum(record[f"lock_{name}"] for record in locked.values())
    records = {"constant": [constant], "page_heap": [pages], "huge": [huge], "metadata": [meta],
               "sampler": [sampler],
               "registry": [registry], "cache": caches, "page_shard": shards, "region": regions,
               "extent": extents}
    known = dict(v)
    for name, formula in OF_PROCESS.items():
        counter = COUNTERS.get(name, {})
        if counter.get("source") == "sampling" and not sampler["rate"]:
            continue
        if formula[0] == "/":
            part, whole = (counter_formulas.value(side, known, records) for side in formula[1:])
            if counter["kind"] != "ratio":  # the program prints ratios with fewer digits
                v[name] = part // whole if whole else None
            continue
        known[name] = counter_formulas.value(formula, known, records)
        if counter:
            v[name] = known[name]

    def summed(name, index):
        return sum(source[name][index] for source in [registry, *caches])

    histograms = {"free_runs": log2_bins(dirty_runs, 10),
                  "unbacked_runs": log2_bins(clean_runs, 10)}
    if sampler["rate"]:
        for one in ("alloc", "free"):
            histograms[f"{one}_time"] = [summed(f"{one}_log2_ns", i) for i in range(32)]
    return {"library": d.library, "counters": v, "classes": by_class, "histograms": histograms,
            "locks": {name: {"lock_taken": record["lock_acquisitions"],
                             "lock_waited": record["lock_contentions"],
                             "lock_refused": record["lock_refusals"]} for name,
                      record in locked.items()}}
