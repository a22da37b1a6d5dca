"""Charts of a sweep and of the frontier, as SVG, by matplotlib (bench/publish installs it)."""

from . import frontier, ratios, sweeps

SUBJECT = {"color": "#c2410c", "linewidth": 2.0, "zorder": 5}
PEERS = (
    ("system", "#111827"),
    ("mimalloc3", "#2563eb"),
    ("jemalloc-5.3.1", "#16a34a"),
    ("snmalloc", "#9333ea"),
    ("tcmalloc-google", "#0891b2"),
    ("rpmalloc", "#a16207"),
)


def _rows(data, name):
    found = sweeps.unpack(data["allocators"].get(name, {}))
    return [row for row in found if row["alignment"] == 0 and row["size"] >= 16]


def _pyplot():
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    # The same data make the same file, byte for byte.
    matplotlib.rcParams.update({"svg.hashsalt": "loam", "svg.fonttype": "none", "font.size": 9})
    return plt


def _save(plt, figure, path):
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def _plot(data, path, title, unit, value, log=False, limit=None):
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
    subject = data["subject"]
    lines = [(subject, SUBJECT)]
    lines += [(name, {"color": color, "linewidth": 0.8, "alpha": 0.8}) for name, color in PEERS]
    for name, style in lines:
        points = value(data, name)
        if points:
            axes.plot([x for x, _ in points], [y for _, y in points], label=name, **style)
    axes.set_xscale("log", base=2)
    ticks = [1 << power for power in range(4, 22, 2)]
    axes.set_xticks(ticks, [f"{t}" if t < 1024 else f"{t >> 10} K" if t < 1 << 20 else "1 M"
                            for t in ticks])
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0, top=limit)
    axes.set_title(title, loc="left")
    axes.set_xlabel("bytes requested")
    axes.set_ylabel(unit)
    axes.grid(True, linewidth=0.3)
    axes.legend(ncols=4, fontsize=8, frameon=False)
    _save(plt, figure, path)


def _each(of):
    return lambda data, name: [(row["size"], of(row)) for row in _rows(data, name)]


def _instructions(data, name):
    found = data["allocators"].get(name, {}).get("instructions") or []
    return [(size, count) for size, alignment, count in found if alignment == 0 and size >= 16]


def draw(data, folder):
    """Writes the charts; returns [(file name, what it shows), ...]."""
    charts = [
        ("sizes-warm", "A block allocated and freed, warm", "ns", _each(lambda r: r["warm_ns"]),
         True, None),
        (
            "sizes-page",
            "First use: cost for a page touched",
            "ns a page",
            _each(lambda r: r["cold_ns"] * r["blocks"] / r["pages"]),
            True,
            None,
        ),
        (
            "sizes-faults",
            "First use: page faults for a page touched",
            "faults a page",
            _each(lambda r: sweeps.per_page(r, "faults")),
            False,
            2,
        ),
        (
            "sizes-rounding",
            "What rounding adds to the request",
            "per cent",
            _each(lambda r: 100 * (r["usable"] / r["size"] - 1)),
            False,
            50,
        ),
        (
            "sizes-resident",
            "Resident above what was asked for, every page in use",
            "per cent",
            _each(lambda r: 100 * (r["full_resident"] / r["blocks"] / r["size"] - 1)),
            False,
            50,
        ),
        (
            "sizes-instructions",
            "Instructions a block, 64 allocated, then freed",
            "instructions",
            _instructions,
            True,
            None,
        ),
    ]
    made = []
    for name, title, unit, value, log, limit in charts:
        if not value(data, data["subject"]):
            continue  # counts were not requested, or callgrind is missing
        _plot(data, folder / f"{name}.svg", title, unit, value, log, limit)
        made.append((f"{name}.svg", title))
    return made


def _planes(data, path, title, rows, columns, point_of):
    """A plane of overhead and speed for each point; the upper left corner is the best one."""
    plt = _pyplot()
    figure, all_axes = plt.subplots(
        len(rows), len(columns), figsize=(2.6 * len(columns), 1.9 * len(rows) + 0.8),
        layout="constrained", squeeze=False
    )
    colors, others = dict(PEERS), {}
    for line, row in zip(all_axes, rows):
        for axes, column in zip(line, columns):
            point = point_of(row, column)
            rounds = data["points"].get(point.name, {"rounds": []})["rounds"]
            for name in data["allocators"]:
                speed = ratios.median_of(rounds, name, "speed")
                if speed is None:
                    continue
                overhead = 100 * ratios.median_of(rounds, name, "average")
                mine = name in data["ours"]
                mark = axes.scatter(
                    overhead,
                    speed / 1e6,
                    s=36 if mine else 14,
                    marker="D" if mine and name != data["subject"] else "o",
                    color=SUBJECT["color"] if mine else colors.get(name, "#9ca3af"),
                    zorder=5 if mine else 2,
                    label=name,
                )
                others.setdefault(name, mark)
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
            axes.set_title(f"{row}, {column}", loc="left", fontsize=8)
            axes.tick_params(labelsize=7)
            axes.grid(True, linewidth=0.3)
    figure.suptitle(title, x=0.01, ha="left")
    figure.supxlabel("overhead, per cent of the live bytes", fontsize=8)
    figure.supylabel("million operations a processor second", fontsize=8)
    figure.legend(others.values(), others.keys(), loc="outside lower center", ncols=6, fontsize=8,
                  frameon=False)
    _save(plt, figure, path)


def draw_frontier(data, folder):
    """Writes the charts of bench/frontier; returns [(file name, what it shows), ...]."""
    lives, mixes = ("4M", "16M", "64M", "256M"), tuple(frontier.MIXES)
    orders, few = ("fifo", "hot", "lifo", "burst"), ("small", "medium", "nine", "wide")
    charts = [
        ("frontier-mixes", "Mixes of sizes, by live bytes", mixes, lives, lambda r,
         c: frontier.Point(c, r, "random", 1)),
        ("frontier-orders", "Orders of frees, 16 MB live", few, orders, lambda r,
         c: frontier.Point("16M", r, c, 1)),
        ("frontier-orders-256", "Orders of frees, 256 MB live", few, orders, lambda r,
         c: frontier.Point("256M", r, c, 1)),
    ]
    for name, title, rows, columns, point_of in charts:
        _planes(data, folder / f"{name}.svg", title, rows, columns, point_of)
    return [(f"{name}.svg", title) for name, title, *_ in charts]
