"""Runs the benchmarks and writes `docs/benchmarks.md`: `python -m bench [--quick] [--only NAME] [--output FILE]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from bench import machine
from bench.bench import Bench
from bench.cases import (
    answers,
    commands,
    crowd,
    daemons,
    exporters,
    gateway_cost,
    gateway_watch,
    growth_history,
    growth_interval,
    growth_ports,
    growth_scrapers,
    job_reading,
    lateness,
    loops,
    rendering,
    report,
    signals,
    stream,
    top,
    traffic,
)
from bench.cases import render as pictures
from bench.growth_pictures import draw_picture
from bench.report import Section, render

CASES: dict[str, ModuleType] = {
    "daemons": daemons,
    "loops": loops,
    "signals": signals,
    "exporters": exporters,
    "lateness": lateness,
    "crowd": crowd,
    "rendering": rendering,
    "answers": answers,
    "stream": stream,
    "traffic": traffic,
    "ports": growth_ports,
    "scrapers": growth_scrapers,
    "history": growth_history,
    "interval": growth_interval,
    "jobs": job_reading,
    "report": report,
    "commands": commands,
    "pictures": pictures,
    "top": top,
    "gateway": gateway_cost,
    "watch": gateway_watch,
}
# what users ask first comes before the table of budgets
BEFORE_BUDGETS = ("daemons", "loops", "exporters")
DEFAULT_OUTPUT = Path(__file__).resolve().parent.parent / "docs/benchmarks.md"
WRITTEN_BY = "<!-- Written by `make bench`; do not edit. -->\n\n"
PREFACE = """\
[The design](design.md#budgets) explains missed budgets. For a budget that is a ratio, both sides were measured in this
run. The counter files are symbolic links to counters of the kernel's loopback interface: every read is a read of a real
kernel file, but involves no device. On a real node a read takes longer, also for the C program."""
QUICK = "This was a quick run, which is shorter and therefore less precise."


def main() -> int:
    """Run the selected cases and write the report; returns 0 whether or not the budgets are met."""
    options = _parse()
    chosen = options.only or list(CASES)
    shared_memory = Path("/dev/shm")
    lines = machine.describe()
    sections: dict[str, Section] = {}
    begun, stolen = time.monotonic(), machine.stolen_seconds()
    with tempfile.TemporaryDirectory() as compiled:
        # what is measured finds its modules compiled, as after an installation
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        for name in chosen:
            with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as folder:
                sections[name] = CASES[name].run(Bench(Path(folder), options.quick))
            _tell(name, sections[name])
    stolen = machine.stolen_seconds() - stolen
    seconds = time.monotonic() - begun
    lines.append(f"- duration of the run: {seconds:.0f} s, with {stolen:.1f} s of CPU time stolen by the host")
    preface = [PREFACE, *([QUICK] if options.quick else []), "\n".join(lines)]
    first = [section for name, section in sections.items() if name in BEFORE_BUDGETS]
    others = [section for name, section in sections.items() if name not in BEFORE_BUDGETS]
    page = WRITTEN_BY + render("Benchmarks", preface, first, others)
    if options.output:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text(page)
        for section in sections.values():
            if section.picture is not None:
                draw_picture(section.picture, options.output.parent / "pictures")
        print(f"written: {options.output}")
    else:
        print(page)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure every budget.")
    parser.add_argument("--quick", action="store_true", help="shorter, less precise run")
    parser.add_argument("--only", action="append", choices=CASES, metavar="NAME", help=f"one of {', '.join(CASES)}")
    parser.add_argument(
        "--output", type=Path, help="output file (default: docs/benchmarks.md, or standard output with --only)"
    )
    options = parser.parse_args()
    if options.output is None and not options.only:
        options.output = DEFAULT_OUTPUT
    return options


def _tell(name: str, section: Section) -> None:
    print(f"{name}: measured", file=sys.stderr)
    for budget in section.budgets:
        print(f"  {budget.what}: {budget.result} ({budget.budget}): {budget.verdict()}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
