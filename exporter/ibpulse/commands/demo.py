"""`ibpulse demo`: runs the daemon on a fabric simulated by a child process."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import DEFAULT
from ibpulse.agent.daemon import run_daemon
from ibpulse.base.installation import own_command
from ibpulse.commands import simulate
from ibpulse.commands.logs import set_up_log
from ibpulse.workbench.demo_nodes import (
    NODES_FILE,
    demo_folder,
    demo_nodes,
    simulated,
    wait_until_serving,
    watch_nodes,
)
from ibpulse.workbench.simulate.fleet import SimulatedNode, describe_job
from ibpulse.workbench.simulate.jobs import JOBS_FOLDER


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate and serve until SIGTERM or SIGINT; all files are removed at the end."""
    set_up_log(settings.log.level, settings.log.format)
    nodes = simulate.parse_nodes(arguments, clocks_differ=True)
    simulate.check_faults(arguments)
    with demo_folder() as scratch:
        tree = scratch / "sys"
        if nodes:
            return run_nodes(nodes, tree, arguments, settings)
        with simulated(tree, simulate.fabric_flags(arguments, settings.sampler.interval), arguments.ports):
            path = replace(settings.path, sysfs=tree)
            ring = replace(settings.ring, dir=scratch / "ring")
            simulate.announce(arguments, tree, settings.sampler.interval)
            check = f"{own_command()} doctor --path.sysfs={tree} --ring.dir={ring.dir}"
            print(f"check it:\n  {check}", flush=True)
            capture = settings.capture
            if arguments.origins["capture.dir"] == DEFAULT:
                # a demo leaves no captures behind unless a directory is given
                capture = replace(capture, dir=scratch / "captures")
            jobs = settings.jobs
            if arguments.origins["jobs.owners-dir"] == DEFAULT:
                # the jobs of this node do not run on a simulated fabric
                jobs = replace(jobs, owners_dir=tree / JOBS_FOLDER)
            return run_daemon(replace(settings, path=path, ring=ring, capture=capture, jobs=jobs))


def run_nodes(nodes: Sequence[SimulatedNode], trees: Path, arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate several nodes and run a daemon on each; `trees` is the directory of their trees.

    Raises:
        DaemonError: a daemon failed to start.
    """
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
