#!/usr/bin/env python3
"""Makes docs/images/dashboard.png: the panels of docs/monitoring/dashboard.json with figures of
real programs.

    docs/images/dashboard.py [--seconds N] [--output FILE] [--width PIXELS]

It starts `loam export`, a Prometheus server that scrapes it, and two programs on Loam; it asks the
server what the panels ask, and draws the answers in the panels' places. Grafana is not needed, and
draws the same lines in its own style. Needs Chromium, and Debian's package prometheus.
"""
import argparse
import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from shoot import find_browser, photograph

ROOT = Path(__file__).resolve().parent.parent.parent
LOAM = ROOT / "build" / "loam"
# A service whose cache is full after a while, and one that grows, shrinks and grows.
PROGRAMS = {
    "sessions": """
import random, time
kept = {}
for i in range(10**9):
    kept[random.randrange(60_000)] = bytes(random.randrange(600, 3000))
    if i % 400 == 0: time.sleep(0.02)
""",
    "batches": """
import time
while True:
    rows = []
    for _ in range(60):
        rows += [bytes(700 + n) for n in range(1000)]
        time.sleep(0.15)
    rows = rows[::9]
    time.sleep(8)
""",
}
STEP = 2

PAGE = """<!doctype html><meta charset="utf-8"><title>Loam heaps</title>
<style>
body { margin: 0; padding: 12px; background: #f4f5f5; font: 13px system-ui, sans-serif;
  color: #24292e; }
.board { display: grid; grid-template-columns: repeat(24, 1fr); gap: 8px; }
.panel { background: #fff; border: 1px solid #dcdfe3; border-radius: 2px; padding: 6px 8px; }
.panel h2 { font-size: 13px; font-weight: 600; margin: 0 0 2px; }
.chart { height: 190px; }
</style><body><div class="board"></div>
<script>ECHARTS</script>
<script>
const UNITS = {bytes: [1024, ["B", "KiB", "MiB", "GiB"]],
  Bps: [1000, ["B/s", "kB/s", "MB/s", "GB/s"]],
               ops: [1000, ["/s", "k/s", "M/s"]]};
function shown(value, unit) {
  if (unit === "percentunit") return +(100 * value).toFixed(value < 0.01 ? 3 : 0) + " %";
  const [base, names] = UNITS[unit];
  let place = 0;
  while (Math.abs(value) >= base && place + 1 < names.length) { value /= base; ++place; }
  return +value.toFixed(1) + " " + names[place];
}
for (const panel of PANELS) {
  const box = document.createElement("div");
  box.className = "panel";
  box.style.gridColumn = `${panel.x + 1} / span ${panel.w}`;
  box.innerHTML = "<h2></h2><div class=chart></div>";
  box.firstChild.textContent = panel.title;
  document.querySelector(".board").append(box);
  echarts.init(box.lastChild, null, {renderer: "svg"}).setOption({
    animation: false,
    grid: {left: 8, right: 12, top: 8, bottom: 26, containLabel: true},
    legend: {bottom: 0, icon: "roundRect", itemHeight: 3, itemWidth: 14},
    xAxis: {type: "time", splitLine: {show: true, lineStyle: {opacity: 0.4}},
      axisLabel: {formatter: "{HH}:{mm}:{ss}", hideOverlap: true}},
    yAxis: {type: "value", min: 0, splitNumber: 4,
      axisLabel: {formatter: value => shown(value, panel.unit)}},
    series: panel.series.map(one => ({name: one.name, data: one.points, type: "line",
      symbol: "none",
                                      lineStyle: {width: 1.5}, areaStyle: {opacity: 0.1}}))});
}
addEventListener("load", () => setTimeout(() => {
  const board = document.querySelector(".board").getBoundingClientRect();
  document.body.dataset.height = Math.ceil(board.bottom); }, 1000));
</script>"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port: int, path: str, **query: object) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(query)}",
                                timeout=10) as answer:
        return json.load(answer)


def panels(port: int, begin: float, end: float) -> list[dict]:
    """What each panel draws: its place, its title, and its series."""
    dashboard = json.loads((ROOT / "docs/monitoring/dashboard.json").read_text())
    drawn = []
    for panel in dashboard["panels"]:
        series = []
        for target in panel["targets"]:
            query = target["expr"].replace("$instance", ".*").replace("$comm",
                                                                      ".*").replace(
                                                                          "$__rate_interval", "10s")
            for found in ask(port, "/api/v1/query_range", query=query, start=begin, end=end,
                             step=STEP)["data"]["result"]:
                name = re.sub(r"\{\{(\w+)\}\}", lambda label: found["metric"].get(label[1], ""),
                              target["legendFormat"])
                series.append({"name": name, "points": [[1000 * at, float(value)] for at,
                                                        value in found["values"]]})
        if not series:
            sys.exit(f"dashboard: the panel '{panel['title']}' has no series")
        drawn.append({**panel["gridPos"], "title": panel["title"],
                      "unit": panel["fieldConfig"]["defaults"]["unit"],
                      "series": series})
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=90,
                        help="of the programs' lives (default 90)")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("dashboard.png"))
    parser.add_argument("--width", type=int, default=1200)
    arguments = parser.parse_args()
    browser = find_browser()
    server = shutil.which("prometheus")
    if browser is None or server is None or not LOAM.exists():
        parser.error("needs Chromium, prometheus and build/loam (`make build`)")

    with tempfile.TemporaryDirectory(
        prefix="loam-dashboard-") as name, contextlib.ExitStack() as running:
        folder = Path(name)

        def start(*command: object) -> None:
            child = subprocess.Popen([str(word) for word in command], cwd=folder,
                                     stdin=subprocess.DEVNULL,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running.callback(child.wait)
            running.callback(child.kill)

        exporter, port = free_port(), free_port()
        (folder
         / "p.yml").write_text(f"scrape_configs:\n- job_name: loam\n  scrape_interval: {STEP}s\n"
                                      f"  static_configs:\n  - targets: ['127.0.0.1:{exporter}']\n")
        for program, text in PROGRAMS.items():
            # The name that the series bear is that of the file.
            (folder / program).symlink_to(shutil.which("python3"))
            start(LOAM, "run", "--", folder / program, "-c", text)
        start(LOAM, "export", "--listen", f"127.0.0.1:{exporter}", "--match",
              f"^({'|'.join(PROGRAMS)})$")
        start(server, "--config.file=p.yml", "--storage.tsdb.path=data",
              f"--web.listen-address=127.0.0.1:{port}")
        begin = time.time() + 12  # the server and the rates have begun
        time.sleep(arguments.seconds)
        drawn = panels(port, begin, time.time())

        html = PAGE.replace("PANELS", json.dumps(drawn)).replace(
            "ECHARTS", (ROOT / "tool/loam-report/vendor/echarts/echarts.min.js").read_text())
        page = folder / "page.html"
        page.write_text(html)
        if not photograph(browser, page, arguments.width, 12, arguments.output):
            sys.exit("dashboard: the page was not laid out in time")
    print(f"{arguments.output}: {len(drawn)} panels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
