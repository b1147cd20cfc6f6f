"""Measures what ibpulse reports against known truths and fills in the figures of docs/accuracy.md.

The page is written by hand; only the last cells of the rows that are measured come from here.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import daemon_accuracy, fleet_accuracy, fleet_sentences, gateway_accuracy, traffic_accuracy
from bench.machine import describe
from tests.congestion import scoring

PAGE = Path(__file__).parents[1] / "docs/accuracy.md"
RUNS = "Runs"

Rows = Mapping[str, Sequence[str]]
"""The last cells of rows, by the first cell of the row."""

PARTS: dict[str, Callable[[], Rows]] = {
    "Statistics of imperfect samples": traffic_accuracy.measure,
    "Lateness in a fleet report": fleet_accuracy.measure,
    "Sentences of a fleet report": fleet_sentences.measure,
    "Gateway": gateway_accuracy.measure,
    "Signs of limits": scoring.measure,
    "Metrics of a node": daemon_accuracy.measure,
}


def main() -> None:
    """Measure the chosen parts, and write the page after each."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="Section to measure (default: all)")
    parser.add_argument("--output", type=Path, default=PAGE, help="Output file (default: docs/accuracy.md)")
    options = parser.parse_args()
    page = PAGE.read_text()
    print(*describe(), sep="\n")
    for heading in options.only or PARTS:
        begun = [time.strftime("%Y-%m-%d", time.gmtime()), f"{os.getloadavg()[0]:.1f}"]
        rows = PARTS[heading]()
        for name, cells in rows.items():
            print(f"{heading}: {name}: {', '.join(cells)}", flush=True)
        page = fill(fill(page, heading, rows), RUNS, {heading: begun})
        options.output.write_text(page)


def fill(page: str, heading: str, rows: Rows) -> str:
    """The page with other last cells in the rows of a section.

    Raises:
        ValueError: the section has no row of a name.
    """
    lines, left, inside = [], dict(rows), False
    for line in page.splitlines():
        if line.startswith("## "):
            inside = line == f"## {heading}"
        first, *others = line.removesuffix(" |").split(" | ")
        new = left.pop(first.removeprefix("| "), None) if inside else None
        lines.append(line if new is None else " | ".join([first, *others[: -len(new)], *new]) + " |")
    if left:
        raise ValueError(f"docs/accuracy.md: no row {', '.join(map(repr, left))} under {heading!r}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
