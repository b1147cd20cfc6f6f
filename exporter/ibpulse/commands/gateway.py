"""`ibpulse gateway`: serves the pages and the data of many nodes."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import whole
from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibpulse.config import Settings
    from ibpulse.fleet.discovery import Discovery
    from ibpulse.internal_errors import InternalErrors

LISTEN_ADDRESS = ":10056"
MOST_NODES = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the demo."""
    parser.add_argument(
        "--demo",
        type=whole(2, MOST_NODES),
        help=f"Simulate this many nodes, 2 to {MOST_NODES}, and serve them; needs no hardware.",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigError: no source of nodes is given, one is invalid, or the address cannot be bound.
    """
    from ibpulse.commands.demo_nodes import find_ports  # not for help texts
    from ibpulse.commands.logs import set_up_log
    from ibpulse.config.loading import DEFAULT
    from ibpulse.config.setting_types import ADDRESS
    from ibpulse.gateway.service import run_gateway
    from ibpulse.internal_errors import GATEWAY_PARTS, InternalErrors

    set_up_log(settings.log.level, settings.log.format)
    if arguments.origins["web.listen-address"] == DEFAULT:
        settings = replace(settings, web=replace(settings.web, listen_address=ADDRESS.parse(LISTEN_ADDRESS)))
    check(arguments, settings)
    errors = InternalErrors(parts=GATEWAY_PARTS)
    if arguments.demo is None:
        return run_gateway(settings, make_discovery(settings, errors), errors)
    # before the nodes start, which takes a while
    find_ports(settings.web.listen_address.host, settings.web.listen_address.port, 1)
    with demo(arguments.demo) as path:
        if path is None:
            return 0
        demonstrated = replace(settings, nodes=replace(settings.nodes, sources=(str(path),)))
        return run_gateway(demonstrated, make_discovery(demonstrated, errors), errors)


def check(arguments: argparse.Namespace, settings: Settings) -> None:
    """Check that there are nodes to serve.

    Raises:
        ConfigError: lists all faults.
    """
    if arguments.demo is None and not settings.nodes.sources:
        raise ConfigError(["nodes.sources: no source of nodes; give one, like dns+NAME:PORT, or use --demo=8"])
    if arguments.demo is not None and settings.nodes.sources:
        raise ConfigError(["flag --demo: cannot be combined with nodes.sources; use one of them"])


def make_discovery(settings: Settings, errors: InternalErrors) -> Discovery:
    """The discovery of all sources, which all have the access of `nodes.config.file`.

    Raises:
        ConfigError: a source or that file is invalid.
    """
    from ibpulse.fleet.discovery import Discovery  # not for help texts
    from ibpulse.fleet.node_config import NodeConfigFile
    from ibpulse.fleet.target_sources import parse_source

    config = NodeConfigFile(settings.nodes.config_file)
    sources, faults = [], []
    for text in settings.nodes.sources:
        try:
            sources.append((parse_source(text), config))
        except ValueError as error:
            faults.append(f"nodes.sources: {error}")
    if faults:
        raise ConfigError(faults)
    try:
        return Discovery(sources, errors)
    except ValueError as error:
        raise ConfigError([f"nodes.sources: {error}"]) from error


@contextmanager
def demo(count: int) -> Iterator[Path | None]:
    """Simulate nodes that share a job, each with a daemon on a loopback address; yields the file that lists them.

    None if a signal came before they served.

    Raises:
        FabricError, DaemonError: the simulation or a daemon failed to start.
    """
    from threading import Event, Thread

    from ibpulse.commands import simulate
    from ibpulse.commands.demo import demo_folder, simulated
    from ibpulse.commands.demo_nodes import NODES_FILE, demo_nodes, wait_until_serving, watch_nodes
    from ibpulse.config.loading import resolve
    from ibpulse.simulate.fleet import describe_job

    parser = argparse.ArgumentParser()
    simulate.add_fabric_arguments(parser)
    fabric = parser.parse_args([f"--nodes={count}"])
    nodes = simulate.parse_nodes(fabric, clocks_differ=True)
    # not those of the gateway, which has users of its own and decides who may take captures
    settings, origins = resolve({"web.listen-address": ["127.0.0.1:0"], "capture.allow-unauthenticated": ["true"]}, {})
    stop, ending = simulate.stop_on_signals(), Event()
    with demo_folder() as scratch:
        trees = scratch / "sys"
        with (
            simulated(trees, fabric, settings.sampler.interval, trees / nodes[-1].name, stop) as simulator,
            demo_nodes(nodes, trees, scratch, settings, origins) as running,
        ):
            simulate.announce(fabric, trees, settings.sampler.interval)
            print(describe_job(nodes, fabric.ports), flush=True)
            wait_until_serving(running, stop)
            watch = Thread(target=watch_nodes, args=(running, simulator, ending), daemon=True)
            watch.start()
            try:
                yield None if stop.is_set() else scratch / NODES_FILE
            finally:
                # the gateway has taken the handlers; another Ctrl-C must not leave files behind
                simulate.stop_on_signals()
                ending.set()
                watch.join()
