"""What users set and what they query: all settings, options and metrics, also those that no other golden shows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from ibpulse.agent.config.settings import describe
from ibpulse.agent.metrics.page import TABLE
from ibpulse.agent.metrics.ports import OTHER_COUNTERS
from ibpulse.commands import VERBS
from ibpulse.commands.parser import build_parser
from ibpulse.core.metrics.row import Metric
from ibpulse.gateway import service
from tests.contract.goldens import Golden


def table_goldens(_: Path) -> list[Golden]:
    """A section for each setting, verb and metric."""
    settings = {
        row.name: f"flag: {row.flag}\nvariable: {row.variable}\nvalue: {row.kind.metavar}\n"
        f"default: {row.default_text}\n{row.sentence}\n"
        for row in describe()
    }
    options = {
        f"ibpulse {name}": "".join(f"{each}\n" for each in _options(build_parser(verb, show_settings=True)))
        for name, verb in sorted(VERBS.items())
    }
    return [
        Golden("settings.txt", settings),
        Golden("options.txt", options),
        Golden("metrics.txt", dict(_metrics((*TABLE, *OTHER_COUNTERS)))),
        Golden("gateway-metrics.txt", dict(_metrics(service.ROWS))),
    ]


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Each argument with what it is when nobody gives it."""
    for action in parser._actions:
        name = " ".join(action.option_strings) or f"{action.metavar or action.dest}"
        default = f"{action.default}" if isinstance(action.default, Path) else action.default
        values = f", {action.nargs} values" if action.nargs not in (None, 0) else ""
        chosen = f", one of {' '.join(map(str, action.choices))}" if action.choices else ""
        yield f"{name}: {'required' if action.required else json.dumps(default)}{values}{chosen}"


def _metrics(rows: Iterable[Metric]) -> Iterator[tuple[str, str]]:
    for row in sorted(rows, key=lambda row: row.name):
        about = {"type": row.type, "unit": row.unit, "labels": " ".join(row.labels), "buckets": row.buckets}
        lines = (f"{name}: {value}\n" for name, value in about.items() if value)
        yield row.name, "".join(lines) + f"{row.help}\n"
