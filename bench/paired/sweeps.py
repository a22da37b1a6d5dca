"""The demands on a sweep over sizes, judged by counts of faults and bytes, never by the clock.

A row is a line of the program `sweep` (sweep.cpp says what its figures are).
"""

PAGE = 4096
# No size may cost more than this ratio to its neighbours, counted per page that the program
# touches.
CLIFF = 1.3
# Besides that, the heap keeps data for the address space: a page map of 5 bytes a page
# (map/page_map.h). Its pages are first touched when blocks are first placed there.
MAP = 5 / PAGE
# There are eight classes a doubling. So a block is at most 1/9 larger than requested, beyond the
# step of 16 bytes. Above the classes it is at most a page larger. Few blocks above 4 KiB share a
# class with their neighbours, and may be half as large again (decision 98).
ROUNDING, ROUNDING_BYTES = 1 / 9, 16
FEW_BLOCKS, FEW_ROUNDING, MERGED_FROM, LARGEST_CLASS = 512, 1 / 2, 4 << 10, 32 << 10
# Resident bytes beyond the rounded blocks: partly filled spans, records, and the pages of the
# thread's own tables.
SPANS, SPANS_BYTES = 0.04, 192 << 10
# Resident bytes after every block is freed and the heap is trimmed.
LEFT = 1 << 20


def pack(rows):
    """Rows as a file has them, with the column names once. Nanoseconds are rounded to a tenth."""
    columns = list(rows[0])
    values = [[round(row[c], 1) if isinstance(row[c], float) else row[c] for c in columns]
              for row in rows]
    return {"columns": columns, "rows": values}


def unpack(entry):
    """The rows of an allocator's entry; none if it failed."""
    return [dict(zip(entry["columns"], values)) for values in entry.get("rows", [])]


def series(rows):
    """Groups of rows that are neighbours: plain sizes; aligned blocks; half as much again."""
    found = {}
    for row in sorted(rows, key=lambda row: (row["alignment"], row["size"])):
        if row["alignment"] == 0:
            name = "malloc"
        else:
            name = "aligned" if row["size"] == row["alignment"] else "aligned, 1.5 times"
        found.setdefault(name, []).append(row)
    return found


def per_page(row, figure):
    """Faults, or resident pages, per page that the program touched."""
    unit = PAGE if figure == "resident" else 1
    return row[figure] / unit / row["pages"]


def address_pages(row):
    """Pages of address space under the blocks, including gaps between aligned ones."""
    step = max(row["usable"], row["alignment"])
    if row["alignment"]:
        step = -(-step // row["alignment"]) * row["alignment"]
    return row["blocks"] * step / PAGE


def most_usable(row):
    """The largest block to which the heap may round the request."""
    size = max(row["size"], 1)
    if row["alignment"]:
        size = -(-size // row["alignment"]) * row["alignment"]
    few = row["blocks"] < FEW_BLOCKS and MERGED_FROM < size <= LARGEST_CLASS
    by_class = size * (1 + (FEW_ROUNDING if few else ROUNDING)) + ROUNDING_BYTES
    return max(by_class, size + PAGE - 1 if size > LARGEST_CLASS else 0)


def findings(rows):
    """One sentence for each size that breaks a rule; no sentence means success."""
    found = []
    for name, neighbours in series(rows).items():
        for i, row in enumerate(neighbours):
            where = f"{name}, {row['size']} B"
            around = neighbours[max(0, i - 1) : i] + neighbours[i + 1 : i + 2]
            for figure, words in (("faults", "faults"), ("resident", "resident pages")):
                own = per_page(row, figure)
                allowed = CLIFF * max(1.0, min(per_page(other, figure) for other in around))
                allowed += MAP * address_pages(row) / row["pages"]
                if own > allowed:
                    found.append(
                        f"{where}: {own:.2f} {words} a page touched; its neighbours allow "
                        f"{allowed:.2f}"
                    )
            if row["usable"] > most_usable(row):
                found.append(
                    f"{where}: rounded up to {row['usable']} B, more than {most_usable(row):.0f} B"
                )
            held = row["blocks"] * row["usable"]
            most = held * (1 + SPANS) + SPANS_BYTES
            if row["full_resident"] > most:
                found.append(
                    f"{where}: {row['full_resident']} B resident for {row['blocks']} blocks of "
                    f"{row['usable']} B, more than {most:.0f} B"
                )
            if row["after"] > LEFT:
                found.append(f"{where}: {row['after']} B resident after everything was asked back")
    return found


def summary(rows):
    """The figures that a table shows of one allocator."""
    plain = [row for row in rows if row["alignment"] == 0 and row["size"] >= 16]

    def worst(of):
        return max(plain, key=of)

    rounding = worst(lambda row: row["usable"] / row["size"])
    resident = worst(lambda row: row["full_resident"] / (row["blocks"] * row["size"]))
    faults = worst(lambda row: per_page(row, "faults"))
    total = sum(row["blocks"] * row["size"] for row in plain)
    return {
        "rounding_mean": sum(row["usable"] / row["size"] for row in plain) / len(plain) - 1,
        "rounding_worst": rounding["usable"] / rounding["size"] - 1,
        "rounding_worst_size": rounding["size"],
        "resident_mean": sum(row["full_resident"] for row in plain) / total - 1,
        "resident_worst": resident["full_resident"] / resident["blocks"] / resident["size"] - 1,
        "resident_worst_size": resident["size"],
        "faults_worst": per_page(faults, "faults"),
        "faults_worst_size": faults["size"],
    }
