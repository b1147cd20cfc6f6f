"""`ibpulse fleet collect`: collects the samples of many nodes into a dataset."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import INSTANT, SOME_TIME, whole
from ibpulse.commands.arguments import recording_or_address
from ibpulse.errors import ConfigError, DatasetError
from ibpulse.memory import ALLOCATOR
from ibpulse.missing_packages import how_to_install
from ibpulse.text import escape_controls
from ibpulse.units import SECOND_NS, format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Executor

    from ibpulse.config import Settings
    from ibpulse.datasets.collection_result import CollectionResult
    from ibpulse.datasets.dataset_store import DatasetStore
    from ibpulse.fleet.discovery import Discovery

LAST = "5m"
# the newest samples of a node are not settled yet, and its clock may be behind
SETTLE_NS = 2 * SECOND_NS
MOST_PROCESSES = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sources, the span, and the dataset."""
    parser.add_argument(
        "files",
        type=recording_or_address,
        nargs="*",
        metavar="FILE",
        help="Captures or recordings to collect instead of asking nodes, or the URL of a gateway.",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="DATASET",
        help="Directory or URI (s3://bucket/path) of the dataset; one that exists is continued.",
    )
    parser.add_argument("--url", metavar="URL", help="Collect the nodes of a gateway, such as http://gateway:10056.")
    parser.add_argument("--job", default="", metavar="ID", help="Collect the nodes of this job, and its ports.")
    parser.add_argument("--last", type=SOME_TIME, help=f"Collect the time up to now (default: {LAST}).")
    parser.add_argument(
        "--from",
        dest="begin",
        type=INSTANT,
        help="Begin at this wall-clock time, such as 2026-11-21T12:00:00Z.",
    )
    parser.add_argument("--to", dest="end", type=INSTANT, help="End at this wall-clock time (default: now).")
    parser.add_argument(
        "--processes",
        type=whole(1, MOST_PROCESSES),
        default=min(os.cpu_count() or 1, MOST_PROCESSES),
        help="Processes that compute the small tiers (default: one for each CPU).",
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="Compute the small tiers on a Dask scheduler, such as tcp://dask:8786."
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Collect, and print what was collected; 1 if that is nothing.

    Raises:
        ConfigError: arguments are invalid, or a package is missing.
        IbpulseError: the dataset cannot be written.
    """
    # pyarrow reads it on import
    os.environ.update(ALLOCATOR)
    from ibpulse.commands.logs import set_up_log  # not for help texts

    set_up_log(settings.log.level, settings.log.format)
    take_address(arguments)
    span = read_span(arguments, settings)
    try:
        from ibpulse.datasets.dataset_store import DatasetStore
        from ibpulse.datasets.stage_workers import open_scheduler, open_workers
    except ModuleNotFoundError as error:
        raise missing(error) from error
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


def missing(error: ModuleNotFoundError) -> ConfigError:
    """The error for a package of the extra that is not installed."""
    name = error.name or "a package"
    return ConfigError([f"`ibpulse fleet collect` needs {name}, which is not installed; {how_to_install(name)}"])


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
    from ibpulse.datasets.unfinished_span import UnfinishedSpan, continue_span  # not for help texts

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
    from ibpulse.datasets.collected_files import FileCollection, collect_files  # not for help texts

    labels = asyncio.run(_read_labels(_discovery(arguments, settings))) if settings.nodes.sources else {}
    return collect_files(store, FileCollection(arguments.files, arguments.job, span, labels), *workers)


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
    from ibpulse.datasets.collected_nodes import (
        GATEWAY_PARALLEL,
        PARALLEL,
        NodeCollection,
        collect_nodes,
    )  # not for help texts
    from ibpulse.datasets.unfinished_span import end_span

    parallel = GATEWAY_PARALLEL if arguments.url else PARALLEL
    wanted = NodeCollection(*span, arguments.job, parallel)
    result = asyncio.run(collect_nodes(store, _discovery(arguments, settings), wanted, computing))
    end_span(store)
    return result


def _discovery(arguments: argparse.Namespace, settings: Settings) -> Discovery:
    """The sources of nodes.

    Raises:
        ConfigError: one of them is invalid.
    """
    from ibpulse.commands.gateway import make_discovery  # not for help texts
    from ibpulse.datasets.gateway_nodes import GatewaySource
    from ibpulse.fleet.discovery import Discovery
    from ibpulse.fleet.node_config import NodeConfigFile
    from ibpulse.internal_errors import InternalErrors

    if not arguments.url:
        return make_discovery(settings, InternalErrors())
    config = NodeConfigFile(settings.nodes.config_file)
    try:
        return Discovery([(GatewaySource(arguments.url, config), config)])
    except ValueError as error:
        raise ConfigError([f"flag --url: {error}"]) from error
