"""`ibpulse gateway --demo=COUNT`: serves simulated nodes that share a job."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import resolve
from ibpulse.base.errors import ConfigError
from ibpulse.commands import VERBS, simulate
from ibpulse.commands.gateway import gateway_options
from ibpulse.commands.logs import set_up_log
from ibpulse.commands.parser import parse
from ibpulse.gateway.service import run_gateway
from ibpulse.workbench.demo_nodes import (
    NODES_FILE,
    demo_folder,
    demo_nodes,
    find_ports,
    simulated,
    wait_until_serving,
    watch_nodes,
)
from ibpulse.workbench.simulate.fleet import describe_job


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate the nodes and serve them until SIGTERM or SIGINT.

    Raises:
        ConfigError: sources of nodes are given too, or the address cannot be bound.
        FabricError, DaemonError: the simulation or a daemon failed to start.
    """
    set_up_log(settings.log.level, settings.log.format)
    options = gateway_options(settings, arguments.origins)
    if options.sources:
        raise ConfigError(["flag --demo: cannot be combined with nodes.sources; use one of them"])
    # before the nodes start, which takes a while
    find_ports(options.host, options.port, 1)
    with demo(arguments.demo) as path:
        return 0 if path is None else run_gateway(replace(options, sources=(str(path),)))


@contextmanager
def demo(count: int) -> Iterator[Path | None]:
    """Simulate nodes that share a job, each with a daemon on a loopback address; yields the file that lists them.

    None if a signal came before they served.

    Raises:
        FabricError, DaemonError: the simulation or a daemon failed to start.
    """
    fabric = parse(VERBS["demo"], [f"--nodes={count}"]).arguments
    nodes = simulate.parse_nodes(fabric, clocks_differ=True)
    # not those of the gateway, which has users of its own and decides who may take captures
    settings, origins = resolve({"web.listen-address": ["127.0.0.1:0"], "capture.allow-unauthenticated": ["true"]}, {})
    flags = simulate.fabric_flags(fabric, settings.sampler.interval)
    stop, ending = simulate.stop_on_signals(), Event()
    with demo_folder() as scratch:
        trees = scratch / "sys"
        with (
            simulated(trees, flags, fabric.ports, trees / nodes[-1].name, stop) as simulator,
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
