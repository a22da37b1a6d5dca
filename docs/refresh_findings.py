#!/usr/bin/env python3
"""Puts the tables of a results file of the lab into docs/findings.md, between its marks.

    docs/refresh_findings.py build/lab/all.json [--tool build/loam]

The tables are what `loam lab show --markdown` prints; nothing else of the page is changed. A file
whose trials were mostly disturbed is refused unless --disturbed is given: such times are no result.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("findings.md")
BEGIN = "<!-- lab: begin. Written by docs/refresh_findings.py. -->"
END = "<!-- lab: end -->"


def disturbed_share(results: Path) -> float:
    trials = [t for t in json.loads(results.read_text())["trials"]
              if t["status"] == "ok" and not t.get("warm_up")]
    return sum(t["noisy"] for t in trials) / len(trials) if trials else 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--tool", default=Path("build/loam"), type=Path)
    parser.add_argument("--disturbed", action="store_true",
                        help="take a file although the machine was busy")
    arguments = parser.parse_args()
    if not arguments.results.is_file():
        parser.error(f"{arguments.results} does not exist; `make lab-all` writes build/lab/all.json")
    shown = subprocess.run([arguments.tool, "lab", "show", "--markdown", arguments.results],
                           capture_output=True, text=True)
    if shown.returncode != 0:
        sys.stderr.write(shown.stderr)
        return 1
    share = disturbed_share(arguments.results)
    if share > 0.5 and not arguments.disturbed:
        parser.error(f"during {share:.0%} of the trials the machine was busy; measure on a quiet one, "
                     "or say --disturbed")
    page = PAGE.read_text()
    if BEGIN not in page or END not in page.split(BEGIN)[1]:
        parser.error(f"{PAGE} has lost its marks")
    head, rest = page.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{shown.stdout.strip()}\n{END}{rest.split(END, 1)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
