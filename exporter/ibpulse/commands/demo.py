"""`ibpulse demo`: runs the daemon on a fabric simulated by a child process."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.own_command import own_command
from ibpulse.commands import simulate
from ibpulse.errors import FabricError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Event

    from ibpulse.config import Settings
    from ibpulse.simulate.fleet import SimulatedNode

START_SECONDS = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the simulated fabric."""
    simulate.add_fabric_arguments(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate and serve until SIGTERM or SIGINT; all files are removed at the end."""
    from ibpulse.commands.logs import set_up_log
    from ibpulse.config.loading import DEFAULT
    from ibpulse.daemon import run_daemon  # not for help texts
    from ibpulse.simulate.simulated_jobs import JOBS_FOLDER

    set_up_log(settings.log.level, settings.log.format)
    nodes = simulate.parse_nodes(arguments, clocks_differ=True)
    simulate.check_faults(arguments)
    with demo_folder() as scratch:
        tree = scratch / "sys"
        if nodes:
            return run_nodes(nodes, tree, arguments, settings)
        with simulated(tree, arguments, settings.sampler.interval):
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


@contextmanager
def demo_folder() -> Iterator[Path]:
    """A directory for all files of a demo, in memory if possible, which is removed at the end."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ibpulse-demo-", dir=memory) as folder:
        yield Path(folder)


def run_nodes(nodes: Sequence[SimulatedNode], trees: Path, arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate several nodes and run a daemon on each; `trees` is the directory of their trees.

    Raises:
        DaemonError: a daemon failed to start.
    """
    from ibpulse.commands.demo_nodes import NODES_FILE, demo_nodes, wait_until_serving, watch_nodes
    from ibpulse.simulate.fleet import describe_job

    interval_ns, scratch = settings.sampler.interval, trees.parent
    stop = simulate.stop_on_signals()
    with simulated(trees, arguments, interval_ns, trees / nodes[-1].name, stop) as simulator:
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


@contextmanager
def simulated(
    tree: Path,
    arguments: argparse.Namespace,
    interval_ns: int,
    last_tree: Path | None = None,
    stop: Event | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `ibpulse simulate`; the tree is complete when the block begins, unless `stop` is set.

    `last_tree` is the one that is written last.

    Raises:
        FabricError: the simulation failed to start; it reports the reason on standard error.
    """
    from ibpulse.commands.demo_nodes import end_processes  # not for help texts

    flags = simulate.fabric_flags(arguments, interval_ns)
    # its own process group, so that Ctrl-C stops the daemon first and the fabric after it
    process = subprocess.Popen(
        [sys.executable, "-m", "ibpulse", "simulate", str(tree), *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        # devices appear in order, each one complete
        while not ((last_tree or tree) / f"class/infiniband/mlx5_{arguments.ports - 1}").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise FabricError("the simulated fabric failed to start; see the message above")
            if stop and stop.is_set():
                break
            time.sleep(0.02)
        yield process
    finally:
        # kills it if it does not end, for example because it is stopped
        end_processes([process])
