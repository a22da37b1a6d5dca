#!/usr/bin/env python3
"""Makes docs/images/report.png: some charts of a report that `loam lab --html` wrote, with the
page's own heading and the legend, as Chromium draws them. Of a single chart it is the chart with
its legend.

    docs/images/shoot.py build/lab/report.html [--charts ID,ID...] [--output FILE] [--width PIXELS]

docs/images/replay.png is `--charts replay-memory --width 760` of the report of a replay.

Only the page's parts that are not wanted are hidden; nothing is drawn anew. Needs Chromium.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BROWSERS = ["chromium", "chromium-browser", "google-chrome"]
CHARTS = "lfh-overhead,lfh-speed,lfh-trade,tokens-time"

STYLE = """<style>
nav, aside, #findings, #method, #charts > h2, #charts > h3, .tools, details, .legend, footer,
.chart-figure:not(SELECTED) { display: none !important; }
#charts > .grid { display: contents !important; }
#charts { display: grid !important; grid-template-columns: 1fr 1fr; gap: 16px; }
#charts > .switches { grid-column: 1 / -1; }
body { padding: 16px !important; margin: 0 !important; max-width: none !important; }
</style>"""
# Of one chart: the chart with its own legend, and nothing else of the page.
ALONE = """<style>
header, #summary, #charts > .switches { display: none !important; }
#charts { grid-template-columns: 1fr !important; }
SELECTED .legend { display: flex !important; }
</style>"""
# Asks the page how tall it became, since a screenshot has the window's size.
MEASURE = """<script>addEventListener("load", () => {
  dispatchEvent(new Event("resize"));
  setTimeout(() => { document.body.dataset.height =
    Math.ceil(document.querySelector("main").getBoundingClientRect().bottom); }, 2000);
});</script>"""


def run_browser(browser: str, page: Path, width: int, height: int, *arguments: str) -> str:
    with tempfile.TemporaryDirectory(prefix="loam-shoot-") as profile:
        return subprocess.run(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={profile}", f"--window-size={width},{height}",
             "--virtual-time-budget=8000", *arguments, page.as_uri()],
            check=True, capture_output=True, text=True, timeout=180).stdout


def find_browser():
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def photograph(browser: str, page: Path, width: int, margin: int, output: Path) -> bool:
    """False: the page did not say in time how tall it is (data-height of its body)."""
    dom = run_browser(browser, page, width, 2000, "--dump-dom")
    height = re.search(r'<body[^>]*data-height="(\d+)"', dom)
    if not height:
        return False
    picture = page.with_name("picture.png")
    run_browser(browser, page, width, int(height[1]) + margin, f"--screenshot={picture}")
    shutil.copyfile(picture, output)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--charts", default=CHARTS, help=f"identifiers (default: {CHARTS})")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("report.png"))
    parser.add_argument("--width", type=int, default=1200)
    arguments = parser.parse_args()

    browser = find_browser()
    if browser is None:
        parser.error(f"none of {', '.join(BROWSERS)} is installed")
    if not arguments.report.is_file():
        parser.error(f"{arguments.report} does not exist; `build/loam lab --html FILE` writes one")
    html = arguments.report.read_text()
    there = set(re.findall(r'data-chart="([^"]+)"', html))
    charts = arguments.charts.split(",")
    if missing := [chart for chart in charts if chart not in there]:
        parser.error(f"{arguments.report} has no chart {', '.join(missing)}; it has "
                     f"{', '.join(sorted(there))}")

    selected = ", ".join(f'[data-chart="{chart}"]' for chart in charts)
    style = STYLE + (ALONE if len(charts) == 1 else "")
    html = html.replace("</head>", style.replace("SELECTED", selected) + MEASURE + "</head>", 1)
    with tempfile.TemporaryDirectory(prefix="loam-shoot-") as folder:
        page = Path(folder) / "page.html"
        page.write_text(html)
        if not photograph(browser, page, arguments.width, 16, arguments.output):
            print("shoot: the page was not laid out in time", file=sys.stderr)
            return 1
    print(f"{arguments.output}: {', '.join(charts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
