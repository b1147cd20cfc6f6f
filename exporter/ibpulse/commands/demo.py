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

from ibpulse.commands import simulate
from ibpulse.errors import FabricError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ibpulse.config import Settings

START_SECONDS = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the simulated fabric."""
    simulate.add_fabric_arguments(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate and serve until SIGTERM or SIGINT; all files are removed at the end."""
    from ibpulse.commands.daemon import run_daemon  # not for help texts
    from ibpulse.commands.logs import set_up_log
    from ibpulse.config.loading import DEFAULT
    from ibpulse.simulate.simulated_jobs import JOBS_FOLDER

    set_up_log(settings.log.level, settings.log.format)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ibpulse-demo-", dir=memory) as scratch:
        tree = Path(scratch) / "sys"
        with simulated(tree, arguments, settings.sampler.interval):
            path = replace(settings.path, sysfs=tree)
            ring = replace(settings.ring, dir=Path(scratch) / "ring")
            simulate.announce(arguments, tree, settings.sampler.interval)
            print(f"check it: ibpulse doctor --path.sysfs={tree} --ring.dir={ring.dir}", flush=True)
            capture = settings.capture
            if arguments.origins["capture.dir"] == DEFAULT:
                # a demo leaves no captures behind unless a directory is given
                capture = replace(capture, dir=Path(scratch) / "captures")
            jobs = settings.jobs
            if arguments.origins["jobs.owners-dir"] == DEFAULT:
                # the jobs of this node do not run on a simulated fabric
                jobs = replace(jobs, owners_dir=tree / JOBS_FOLDER)
            return run_daemon(replace(settings, path=path, ring=ring, capture=capture, jobs=jobs))


@contextmanager
def simulated(tree: Path, arguments: argparse.Namespace, interval_ns: int) -> Iterator[None]:
    """Run `ibpulse simulate`; the tree is complete when the block begins.

    Raises:
        FabricError: the simulation failed to start; it reports the reason on standard error.
    """
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
        while not (tree / f"class/infiniband/mlx5_{arguments.ports - 1}").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise FabricError("the simulated fabric failed to start; see the message above")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()
