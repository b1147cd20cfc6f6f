"""`ibpulse fleet collect`: collects the samples of many nodes into a dataset."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError
from ibpulse.base.text import escape_controls
from ibpulse.base.units import format_duration, parse_duration
from ibpulse.commands.logs import set_up_log
from ibpulse.commands.options.fleet import LAST
from ibpulse.gateway.nodes.discovery import Discovery, NodeConfigFile, make_discovery
from ibpulse.workbench.fleet.collection import (
    NOTE,
    CollectionResult,
    UnfinishedSpan,
    choose_span,
    collect_files,
    continue_span,
    open_scheduler,
    open_workers,
    read_labels,
    settled_span,
)
from ibpulse.workbench.fleet.dataset import DatasetStore
from ibpulse.workbench.fleet.from_nodes import GATEWAY_PARALLEL, PARALLEL, GatewaySource, NodeCollection, collect_nodes


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Collect, and print what was collected; 1 if that is nothing.

    Raises:
        ConfigError: arguments are invalid.
        IbpulseError: the dataset cannot be written.
    """
    set_up_log(settings.log.level, settings.log.format)
    take_address(arguments)
    span = read_span(arguments, settings)
    store = DatasetStore(arguments.output)
    store.begin()
    with ExitStack() as stack:
        here = stack.enter_context(open_workers(arguments.processes))
        there = stack.enter_context(open_scheduler(arguments.scheduler)) if arguments.scheduler else here
        if arguments.files:
            result = _collect_files(arguments, settings, store, span, (here, there))
        else:
            result = _collect_nodes(arguments, settings, store, _span_of_nodes(arguments, store, span), there)
    print(escape_controls(result.describe(), keep="\n"))
    return 0 if result.written or result.kept else 1


def take_address(arguments: argparse.Namespace) -> None:
    """Make the address among the files that of the gateway.

    Raises:
        ConfigError: there are several addresses.
    """
    given = [each for each in arguments.files if isinstance(each, str)]
    if given and (arguments.url or len(given) > 1):
        raise ConfigError([f"{given[-1]}: not expected here; give the address of one gateway"])
    arguments.files = [each for each in arguments.files if isinstance(each, Path)]
    arguments.url = arguments.url or "".join(given)


def read_span(arguments: argparse.Namespace, settings: Settings) -> tuple[int, int] | None:
    """The span in ns that the arguments give, rounded to whole seconds; None if they give none.

    Raises:
        ConfigError: arguments are invalid, or do not go together; lists all faults.
    """
    faults: list[str] = [*arguments.faults, *_find_contradictions(arguments, settings)]
    span = choose_span(arguments.last, arguments.begin, arguments.end, time.time_ns())
    if span is not None and span[0] >= span[1]:
        faults.append("flag --to: is not after --from; exchange them")
    if faults:
        raise ConfigError(faults)
    return span


def _find_contradictions(arguments: argparse.Namespace, settings: Settings) -> Iterator[str]:
    """What does not go together, as sentences."""
    if arguments.last is not None and (arguments.begin is not None or arguments.end is not None):
        yield "flag --last: cannot be combined with --from and --to; use one of them"
    if arguments.end is not None and arguments.begin is None and not arguments.files:
        yield "flag --to: needs --from; give both"
    if arguments.url and (arguments.files or settings.nodes.sources):
        yield "flag --url: cannot be combined with files or nodes.sources; use one of them"
    if not (arguments.files or arguments.url or settings.nodes.sources):
        yield "no source of samples; give nodes.sources, the --url of a gateway, or files"


def _span_of_nodes(arguments: argparse.Namespace, store: DatasetStore, span: tuple[int, int] | None) -> tuple[int, int]:
    """The span to ask nodes for; that of the last run if it was the same one and did not end."""
    last_ns: int = arguments.last or parse_duration(LAST)
    span = span or settled_span(last_ns, time.time_ns())
    if arguments.begin is not None:
        return span
    return continue_span(store, UnfinishedSpan(format_duration(last_ns), arguments.job, *span))


def _collect_files(
    arguments: argparse.Namespace,
    settings: Settings,
    store: DatasetStore,
    span: tuple[int, int] | None,
    workers: tuple[Executor, Executor],
) -> CollectionResult:
    labels = asyncio.run(read_labels(_discovery(arguments, settings))) if settings.nodes.sources else {}
    return collect_files(store, arguments.files, *workers, job=arguments.job, span=span, labels=labels)


def _collect_nodes(
    arguments: argparse.Namespace,
    settings: Settings,
    store: DatasetStore,
    span: tuple[int, int],
    computing: Executor,
) -> CollectionResult:
    parallel = GATEWAY_PARALLEL if arguments.url else PARALLEL
    wanted = NodeCollection(*span, arguments.job, parallel)
    result = asyncio.run(collect_nodes(store, _discovery(arguments, settings), wanted, computing))
    store.remove(NOTE)
    return result


def _discovery(arguments: argparse.Namespace, settings: Settings) -> Discovery:
    """The sources of nodes.

    Raises:
        ConfigError: one of them is invalid.
    """
    if not arguments.url:
        return make_discovery(settings.nodes.sources, settings.nodes.config_file)
    config = NodeConfigFile(settings.nodes.config_file)
    try:
        return Discovery([GatewaySource(arguments.url, config)], config)
    except ValueError as error:
        raise ConfigError([f"flag --url: {error}"]) from error
