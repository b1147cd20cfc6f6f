"""`ibpulse fleet report DATASET`: who is late, which rails are hot, stalls and more, from a dataset of many nodes."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError
from ibpulse.workbench.fleet.formats import render_json, render_page, render_text
from ibpulse.workbench.fleet.report import describe_dataset
from ibpulse.workbench.fleet.source import DatasetChoice


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report.

    Raises:
        ConfigError: arguments are invalid; lists all of them.
        DatasetError: the dataset cannot be read.
    """
    faults: list[str] = arguments.faults
    choice = read_choice(arguments, faults)
    against = _read_other(arguments, choice, faults)
    if faults:
        raise ConfigError(faults)
    report = describe_dataset(arguments.dataset, choice, against)
    render = {"text": render_text, "json": render_json, "html": render_page}[arguments.format]
    print(render(report), end="")
    return 0


def read_choice(arguments: argparse.Namespace, faults: list[str]) -> DatasetChoice:
    """The chosen part; errors are appended to `faults`."""
    _check_order("--to", arguments.begin, arguments.end, faults)
    return DatasetChoice(arguments.job, arguments.begin, arguments.end)


def _read_other(arguments: argparse.Namespace, choice: DatasetChoice, faults: list[str]) -> DatasetChoice | None:
    begin_ns, end_ns = arguments.compare_from, arguments.compare_to
    if not arguments.compare_job and begin_ns is None and end_ns is None:
        return None
    _check_order("--compare-to", begin_ns, end_ns, faults)
    return DatasetChoice(arguments.compare_job or choice.job, begin_ns, end_ns)


def _check_order(flag: str, begin_ns: int | None, end_ns: int | None, faults: list[str]) -> None:
    if begin_ns is not None and end_ns is not None and end_ns <= begin_ns:
        faults.append(f"flag {flag}: the span ends before it begins; give a later time")
