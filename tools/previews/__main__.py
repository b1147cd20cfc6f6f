"""Draws the boards and reports what is wrong with them: `python -m tools.previews`."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.previews.board_server import serving
from tools.previews.bundle import bundled
from tools.previews.shots import Shot, browser, take

ROOT = Path(__file__).resolve().parents[2]
THEMES, WIDTHS = ("dark", "light"), (1440, 1920)


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures; return 1 if a query was refused, or text is cut or hard to read."""
    given = _parse(arguments)
    names = given.board or sorted(path.stem for path in given.dashboards.glob("*.json"))
    given.out.mkdir(parents=True, exist_ok=True)
    values: dict[str, list[str]] = {}
    for name, _, value in (text.partition("=") for text in given.var):
        values.setdefault(name, []).append(value)
    page = bundled(given.work)
    end = int((given.until or time.time()) * 1000)
    start = end - given.minutes * 60_000
    found = []
    with serving(page, given.dashboards, given.prometheus) as address, browser() as running:
        for name, theme, width in itertools.product(names, given.theme or THEMES, given.width or WIDTHS):
            shot = Shot(name, theme, width, start, end, given.expand)
            found += take(running, address, shot, values, given.out)
    report = [dataclasses.asdict(finding) for finding in found]
    (given.out / "findings.json").write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    for finding in found:
        sys.stdout.write(f"{finding.shot}: {finding.panel}: {finding.problem}\n")
    # an empty panel may be the good case
    return 1 if any(finding.problem != "empty" for finding in found) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.previews", description="Draw the dashboards without a Grafana server."
    )
    parser.add_argument("--prometheus", default="http://localhost:9090", help="address (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("/tmp/boards"), help="folder for pictures (default: %(default)s)"
    )
    parser.add_argument("--dashboards", type=Path, default=ROOT / "dashboards", help="folder of the boards")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "previews", help="folder for the libraries")
    parser.add_argument("--board", action="append", help="name of a board's file, such as fleet (default: all)")
    parser.add_argument("--theme", action="append", choices=THEMES, help="(default: both)")
    parser.add_argument("--width", action="append", type=int, help=f"in pixels (default: {WIDTHS[0]} and {WIDTHS[1]})")
    parser.add_argument("--minutes", type=int, default=10, help="time range (default: %(default)s)")
    parser.add_argument("--until", type=float, help="its end, in seconds since the epoch (default: now)")
    parser.add_argument("--var", action="append", default=[], metavar="NAME=VALUE", help="value of a variable")
    parser.add_argument("--expand", action="store_true", help="open the collapsed rows")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
