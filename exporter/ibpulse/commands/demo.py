"""`ibpulse demo` and `ibpulse gateway --demo`: daemons, and a gateway, on a fabric simulated by a child process."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import resolve
from ibpulse.agent.daemon import run_daemon
from ibpulse.base.errors import ConfigError
from ibpulse.base.installation import own_command
from ibpulse.commands import VERBS, simulate
from ibpulse.commands.gateway import gateway_options
from ibpulse.commands.parser import parse
from ibpulse.gateway import service
from ibpulse.workbench.demo_nodes import (
    NODES_FILE,
    demo_folder,
    demo_nodes,
    demo_settings,
    find_ports,
    simulated,
    wait_until_serving,
    watch_nodes,
)
from ibpulse.workbench.simulate.fleet import SimulatedNode, describe_job


def run_gateway(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate the nodes and serve them until SIGTERM or SIGINT."""
    options = gateway_options(settings, arguments.origins)
    if options.sources:
        raise ConfigError(["flag --demo: cannot be combined with nodes.sources; use one of them"])
    # before the nodes start, which takes a while
    find_ports(options.host, options.port, 1)
    with _serving_nodes(arguments.demo) as path:
        return 0 if path is None else service.run_gateway(replace(options, sources=(str(path),)))


@contextmanager
def _serving_nodes(count: int) -> Iterator[Path | None]:
    """Simulate nodes that share a job, each with a daemon on a loopback address; yields the file that lists them.

    None if a signal came before they served.
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


def run_demo(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate and serve until SIGTERM or SIGINT; all files are removed at the end."""
    nodes = simulate.parse_nodes(arguments, clocks_differ=True)
    simulate.check_faults(arguments)
    with demo_folder() as scratch:
        tree = scratch / "sys"
        if nodes:
            return run_nodes(nodes, tree, arguments, settings)
        with simulated(tree, simulate.fabric_flags(arguments, settings.sampler.interval), arguments.ports):
            own = demo_settings(settings, arguments.origins, tree, scratch)
            simulate.announce(arguments, tree, settings.sampler.interval)
            check = f"{own_command()} doctor --path.sysfs={tree} --ring.dir={own.ring.dir}"
            print(f"check it:\n  {check}", flush=True)
            return run_daemon(own)


def run_nodes(nodes: Sequence[SimulatedNode], trees: Path, arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate several nodes and run a daemon on each; `trees` is the directory of their trees."""
    interval_ns, scratch = settings.sampler.interval, trees.parent
    stop = simulate.stop_on_signals()
    flags = simulate.fabric_flags(arguments, interval_ns)
    with simulated(trees, flags, arguments.ports, trees / nodes[-1].name, stop) as simulator:
        simulate.announce(arguments, trees, interval_ns)
        with demo_nodes(nodes, trees, scratch, settings, arguments.origins) as running:
            first = settings.web.listen_address.port
            flag = f" --web.listen-address=:{first + len(nodes)}" if first else ""
            print(f"the nodes are listed in {scratch / NODES_FILE}", flush=True)
            gateway = f"{own_command()} gateway --nodes.sources={scratch / NODES_FILE}{flag}"
            print(f"serve them at one address:\n  {gateway}")
            print(describe_job(nodes, arguments.ports), flush=True)
            wait_until_serving(running, stop)
            return watch_nodes(running, simulator, stop)
