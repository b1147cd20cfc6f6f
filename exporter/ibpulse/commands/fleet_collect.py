"""`ibpulse fleet collect`: collects the samples of many nodes into a dataset."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path

from ibpulse.commands.logs import set_up_log
from ibpulse.commands.options.fleet import LAST
from ibpulse.config import Settings
from ibpulse.datasets.collection import (
    NOTE,
    CollectionResult,
    UnfinishedSpan,
    continue_span,
    open_scheduler,
    open_workers,
)
from ibpulse.datasets.dataset import DatasetStore
from ibpulse.datasets.from_files import collect_files
from ibpulse.datasets.from_nodes import GATEWAY_PARALLEL, PARALLEL, GatewaySource, NodeCollection, collect_nodes
from ibpulse.errors import ConfigError, DatasetError
from ibpulse.fleet.discovery import Discovery, make_discovery
from ibpulse.fleet.node_config import NodeConfigFile
from ibpulse.text import escape_controls
from ibpulse.units import SECOND_NS, format_duration, parse_duration

# the newest samples of a node are not settled yet, and its clock may be behind
SETTLE_NS = 2 * SECOND_NS


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
    now_ns = (time.time_ns() - SETTLE_NS) // SECOND_NS * SECOND_NS
    faults: list[str] = [*arguments.faults, *_find_contradictions(arguments, settings)]
    span = None
    if arguments.last:
        span = now_ns - arguments.last, now_ns
    elif arguments.begin is not None or arguments.end is not None:
        end_ns = now_ns if arguments.end is None else arguments.end
        span = (arguments.begin or 0) // SECOND_NS * SECOND_NS, -(-end_ns // SECOND_NS) * SECOND_NS
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
    if span is None:
        now_ns = (time.time_ns() - SETTLE_NS) // SECOND_NS * SECOND_NS
        span = now_ns - parse_duration(LAST), now_ns
    if arguments.begin is not None:
        return span
    return continue_span(
        store, UnfinishedSpan(format_duration(arguments.last or parse_duration(LAST)), arguments.job, *span)
    )


def _collect_files(
    arguments: argparse.Namespace,
    settings: Settings,
    store: DatasetStore,
    span: tuple[int, int] | None,
    workers: tuple[Executor, Executor],
) -> CollectionResult:
    labels = asyncio.run(_read_labels(_discovery(arguments, settings))) if settings.nodes.sources else {}
    return collect_files(store, arguments.files, *workers, job=arguments.job, span=span, labels=labels)


async def _read_labels(discovery: Discovery) -> Mapping[str, Mapping[str, str]]:
    """The labels of the nodes that the sources list, which are not asked.

    Raises:
        DatasetError: a source cannot be read.
    """
    try:
        await discovery.refresh()
        if discovery.problems:
            raise DatasetError("; ".join(discovery.problems))
        return {target.name: target.labels for target in discovery.targets}
    finally:
        await discovery.close()


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
        return Discovery([(GatewaySource(arguments.url, config), config)])
    except ValueError as error:
        raise ConfigError([f"flag --url: {error}"]) from error
