"""The last seconds of a daemon's history as a recording in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from ibpulse.errors import RecordingError
from ibpulse.recordings.recording import Recording, concatenate, meta_with
from ibpulse.recordings.source import daemon_source


def fetch_recent(url: str, last_ns: int) -> Recording:
    """The samples of the last `last_ns` of the daemon at a URL, or as many as it has, with their events.

    Raises:
        IbpulseError: it does not answer, or has no samples.
    """
    return asyncio.run(_fetch(url, last_ns))


async def _fetch(url: str, last_ns: int) -> Recording:
    async with daemon_source(url, last_ns) as source:
        # the first call finds where to begin
        pieces = [piece for _ in range(2) for piece in source.read()]
        events = await source.read_events()
    if not pieces:
        raise RecordingError(f"{url} has no samples of its last {last_ns / 1e9:g} s; try again in some seconds")
    whole = concatenate(pieces)
    known = np.flatnonzero(~np.isnan(whole.bytes_per_second).all(axis=(0, 1)))
    if not known.size:
        raise RecordingError(f"all samples of the last {last_ns / 1e9:g} s of {url} are missing; try again later")
    kept = whole.cut(int(known[0]), whole.ticks)
    return replace(kept, meta=meta_with(kept.meta, events, kept.start_ns, kept.end_ns))
