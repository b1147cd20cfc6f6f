"""`ibpulse record FILE`: records the samples of this node or of a running daemon to a file."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ibpulse.clocks import Clock
from ibpulse.commands.logs import set_up_log
from ibpulse.commands.options import read_url
from ibpulse.commands.sources import await_daemon
from ibpulse.config import Settings
from ibpulse.node.wiring import make_temporary_sampler
from ibpulse.recordings.from_daemon import daemon_source
from ibpulse.recordings.from_ring import SampleSource, ring_source
from ibpulse.recordings.session import RecorderOptions, record, refuse_existing
from ibpulse.sampler.lane import StartProcess, start_sampler
from ibpulse.text import escape_controls

# samples survive a stalled disk for this long
HISTORY_SECONDS = 30


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record until the limit is reached, or SIGINT or SIGTERM; the file is complete in every case.

    Raises:
        IbpulseError: nothing can be sampled, or the file cannot be written.
    """
    set_up_log(settings.log.level, settings.log.format)
    options = RecorderOptions(arguments.duration, arguments.until_idle, settings.analysis.active_threshold)
    refuse_existing(arguments.file, arguments.force)
    url = read_url(arguments)
    opening = daemon_source(await_daemon(url)) if url else node_source(settings)
    print(escape_controls(asyncio.run(record(arguments.file, opening, options, arguments.trim))))
    return 0


@asynccontextmanager
async def node_source(
    settings: Settings, clock: Clock = time, start_process: StartProcess | None = None
) -> AsyncIterator[SampleSource]:
    """The ports of this node, sampled while the block runs.

    Raises:
        IbpulseError: nothing can be sampled.
    """
    async with make_temporary_sampler(settings, HISTORY_SECONDS, clock, start_process or start_sampler) as sampler:
        supervisor = sampler.supervisor
        yield await ring_source(sampler.reader, supervisor.fabric, supervisor.slots, sampler.check, sampler.events)
