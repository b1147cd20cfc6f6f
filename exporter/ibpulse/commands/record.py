"""`ibpulse record FILE`: records the samples of this node or of a running daemon to a file."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import SOME_TIME
from ibpulse.commands.arguments import (
    add_force_argument,
    add_trim_argument,
    add_url_argument,
    await_daemon,
    read_url,
)
from ibpulse.memory import ALLOCATOR
from ibpulse.text import escape_controls

if TYPE_CHECKING:
    from ibpulse.config import Settings

IDLE = "10s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, the source, and when to stop."""
    parser.add_argument("file", type=Path, metavar="FILE", help="Recording to write, a Parquet file.")
    parser.add_argument(
        "--duration",
        type=SOME_TIME,
        help="Length of the recording, like 60s or 8h (default: until Ctrl-C).",
    )
    parser.add_argument(
        "--until-idle",
        type=SOME_TIME,
        nargs="?",
        const=IDLE,
        help=f"Stop once the rails have been active and then idle for this long (without a value: {IDLE}).",
    )
    add_trim_argument(parser)
    add_url_argument(
        parser, "Record the samples of a running daemon, such as node7:10055 or https://node7, instead of this node."
    )
    add_force_argument(parser, "FILE")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record until the limit is reached, or SIGINT or SIGTERM; the file is complete in every case.

    Raises:
        IbpulseError: nothing can be sampled, or the file cannot be written.
    """
    # pyarrow reads it on import
    os.environ.update(ALLOCATOR)
    from ibpulse.commands.logs import set_up_log  # not for help texts
    from ibpulse.node.sampler_source import node_source
    from ibpulse.recordings.from_daemon import daemon_source
    from ibpulse.recordings.session import RecorderOptions, record, refuse_existing

    set_up_log(settings.log.level, settings.log.format)
    options = RecorderOptions(arguments.duration, arguments.until_idle, settings.analysis.active_threshold)
    refuse_existing(arguments.file, arguments.force)
    url = read_url(arguments)
    opening = daemon_source(await_daemon(url)) if url else node_source(settings)
    print(escape_controls(asyncio.run(record(arguments.file, opening, options, arguments.trim))))
    return 0
