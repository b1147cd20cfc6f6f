"""`ibpulse record FILE`: records the samples of this node or of a running daemon to a file."""

from __future__ import annotations

import argparse
import asyncio

from ibpulse import node, recordings
from ibpulse.commands.logs import set_up_log
from ibpulse.commands.options import read_url
from ibpulse.commands.sources import await_daemon
from ibpulse.config import Settings
from ibpulse.recordings.session import RecorderOptions, record, refuse_existing
from ibpulse.text import escape_controls


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record until the limit is reached, or SIGINT or SIGTERM; the file is complete in every case.

    Raises:
        IbpulseError: nothing can be sampled, or the file cannot be written.
    """
    set_up_log(settings.log.level, settings.log.format)
    options = RecorderOptions(arguments.duration, arguments.until_idle, settings.analysis.active_threshold)
    refuse_existing(arguments.file, arguments.force)
    url = read_url(arguments)
    opening = recordings.daemon_source(await_daemon(url)) if url else node.node_source(settings)
    print(escape_controls(asyncio.run(record(arguments.file, opening, options, arguments.trim))))
    return 0
