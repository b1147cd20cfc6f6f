"""`ibpulse fleet collect`, `report` and `render`: a dataset of many nodes."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError, PictureError
from ibpulse.base.text import escape_controls, kilobytes
from ibpulse.base.units import parse_duration
from ibpulse.commands.options.explain import LAST
from ibpulse.gateway.nodes.discovery import Discovery, NodeConfigFile, make_discovery
from ibpulse.workbench.fleet.collection import (
    choose_span,
    collect_files,
    open_scheduler,
    open_workers,
    read_labels,
    settled_span,
)
from ibpulse.workbench.fleet.dataset import DatasetStore
from ibpulse.workbench.fleet.formats import render_json, render_page, render_text
from ibpulse.workbench.fleet.from_nodes import GATEWAY_PARALLEL, PARALLEL, GatewaySource, NodeCollection, collect_nodes
from ibpulse.workbench.fleet.pictures import render_fleet
from ibpulse.workbench.fleet.report import describe_dataset
from ibpulse.workbench.fleet.source import DatasetChoice, ReportSource
from ibpulse.workbench.pictures.options import PictureOptions, size_faults


def run_report(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the report."""
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


TYPES = (".png", ".svg")


def run_render(arguments: argparse.Namespace, settings: Settings) -> int:
    """Draw the picture and print its path and size."""
    faults: list[str] = arguments.faults
    if not faults:
        faults += size_faults(arguments.width, arguments.dpi)
    choice = read_choice(arguments, faults)
    if faults:
        raise ConfigError(faults)
    if arguments.output.suffix.lower() not in TYPES:
        raise PictureError(f"output {arguments.output}: a picture of a dataset can only be written as .png or .svg")

    report = describe_dataset(arguments.dataset, choice)
    options = PictureOptions(arguments.width, arguments.dpi, theme=arguments.theme)
    with closing(ReportSource(arguments.dataset, choice)) as source:
        render_fleet(arguments.picture, source, report, arguments.sort, arguments.output, options)
    size = kilobytes(arguments.output.stat().st_size)
    print(escape_controls(f"{arguments.output}: {arguments.picture} of {arguments.dataset}, {size}"))
    return 0


def run_collect(arguments: argparse.Namespace, settings: Settings) -> int:
    """Collect, and print what was collected; 1 if that is nothing."""
    take_address(arguments)
    span = read_span(arguments, settings)
    store = DatasetStore(arguments.output)
    store.begin()
    with ExitStack() as stack:
        here = stack.enter_context(open_workers(arguments.processes))
        there = stack.enter_context(open_scheduler(arguments.scheduler)) if arguments.scheduler else here
        if arguments.files:
            labels = asyncio.run(read_labels(_discovery(arguments, settings))) if settings.nodes.sources else {}
            result = collect_files(store, arguments.files, here, there, job=arguments.job, span=span, labels=labels)
        else:
            span = span or settled_span(parse_duration(LAST), time.time_ns())
            parallel = GATEWAY_PARALLEL if arguments.url else PARALLEL
            wanted = NodeCollection(*span, arguments.job, parallel)
            result = asyncio.run(collect_nodes(store, _discovery(arguments, settings), wanted, there))
    print(escape_controls(result.describe(), keep="\n"))
    return 0 if result.written or result.kept else 1


def take_address(arguments: argparse.Namespace) -> None:
    """Make the address among the files that of the gateway."""
    given = [each for each in arguments.files if isinstance(each, str)]
    if given and (arguments.url or len(given) > 1):
        raise ConfigError([f"{given[-1]}: not expected here; give the address of one gateway"])
    arguments.files = [each for each in arguments.files if isinstance(each, Path)]
    arguments.url = arguments.url or "".join(given)


def read_span(arguments: argparse.Namespace, settings: Settings) -> tuple[int, int] | None:
    """The span in ns that the arguments give, rounded to whole seconds; None if they give none."""
    faults: list[str] = [*arguments.faults, *_find_contradictions(arguments, settings)]
    span = choose_span(arguments.last, arguments.begin, arguments.end, time.time_ns())
    if span is not None and span[0] >= span[1]:
        faults.append("flag --to: is not after --from; exchange them")
    if faults:
        raise ConfigError(faults)
    return span


def _find_contradictions(arguments: argparse.Namespace, settings: Settings) -> Iterator[str]:
    """Contradictions between the arguments, as sentences."""
    if arguments.last is not None and (arguments.begin is not None or arguments.end is not None):
        yield "flag --last: cannot be combined with --from and --to; use one of them"
    if arguments.end is not None and arguments.begin is None and not arguments.files:
        yield "flag --to: needs --from; give both"
    if arguments.url and (arguments.files or settings.nodes.sources):
        yield "flag --url: cannot be combined with files or nodes.sources; use one of them"
    if not (arguments.files or arguments.url or settings.nodes.sources):
        yield "no source of samples; give nodes.sources, the --url of a gateway, or files"


def _discovery(arguments: argparse.Namespace, settings: Settings) -> Discovery:
    """The sources of nodes."""
    if not arguments.url:
        return make_discovery(settings.nodes.sources, settings.nodes.config_file)
    config = NodeConfigFile(settings.nodes.config_file)
    try:
        return Discovery([GatewaySource(arguments.url, config)], config)
    except ValueError as error:
        raise ConfigError([f"flag --url: {error}"]) from error
