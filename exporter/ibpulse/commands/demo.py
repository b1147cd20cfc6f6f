"""`ibpulse demo`: a simulated fabric in a process of its own, and the daemon over it."""

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
    """Declare what is simulated."""
    simulate.add_fabric_arguments(parser)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate and serve until SIGTERM or SIGINT; nothing stays behind."""
    from ibpulse.commands.daemon import run_daemon  # not for help texts
    from ibpulse.commands.logs import set_up_log
    from ibpulse.config.loading import DEFAULT

    set_up_log(settings.log.level, settings.log.format)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ibpulse-demo-", dir=memory) as scratch:
        tree = Path(scratch) / "sys"
        with simulated(tree, arguments, settings.sampler.interval):
            path = replace(settings.path, sysfs=tree)
            ring = replace(settings.ring, dir=Path(scratch) / "ring")
            print(f"look at it: ibpulse doctor --path.sysfs={tree} --ring.dir={ring.dir}", flush=True)
            capture = settings.capture
            if arguments.origins["capture.dir"] == DEFAULT:
                # nothing of a demo stays behind unless somebody says where
                capture = replace(capture, dir=Path(scratch) / "captures")
            return run_daemon(replace(settings, path=path, ring=ring, capture=capture))


@contextmanager
def simulated(tree: Path, arguments: argparse.Namespace, interval_ns: int) -> Iterator[None]:
    """`ibpulse simulate` at work; the tree is whole when the block begins.

    Raises:
        FabricError: the fabric could not be simulated; its own message is on standard error.
    """
    flags = simulate.fabric_flags(arguments, interval_ns)
    # a group of its own: Ctrl-C is for the daemon, which ends the fabric after itself
    process = subprocess.Popen([sys.executable, "-m", "ibpulse", "simulate", str(tree), *flags], start_new_session=True)
    try:
        deadline = time.monotonic() + START_SECONDS
        # devices appear in order, each when it is whole
        while not (tree / f"class/infiniband/mlx5_{arguments.ports - 1}").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise FabricError("the simulated fabric did not start; see the message above")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()
