"""A node, a recording, and a directory of recordings, made once for all tests of the Python API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest

from ibpulse.agent.flightrecorder import recorder
from ibpulse.core.recordings import Recording
from ibpulse.workbench.python import node as api_node
from tests.fleet.daemons import Daemon, serving
from tests.running import HANG_SECONDS
from tests.web.test_captures import write_in_thread
from tests.web.test_stream import advance


@dataclass(frozen=True)
class Places:
    """Where the examples of the docstrings look: the URL of a daemon, a file, and a directory."""

    url: str
    recording: Path
    dataset: Path


def of_node(recording: Recording, host: str) -> Recording:
    """The recording as if another node had made it."""
    return replace(recording, meta=replace(recording.meta, host=host))


@contextmanager
def in_thread(directory: Path) -> Iterator[Daemon]:
    """A node on which time passes when its clients sleep: 100 ms each time."""
    loop, started = asyncio.new_event_loop(), Queue[Daemon]()
    done = asyncio.Event()

    async def run() -> None:
        async with serving(directory, "gpu-7", lambda node: node.now_ns()) as daemon:
            started.put(daemon)
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    with pytest.MonkeyPatch.context() as patch:
        # before the daemon is made, which keeps it
        patch.setattr(recorder, "run_writer", write_in_thread)
        thread.start()
        try:
            daemon = started.get(timeout=HANG_SECONDS)
            clock = SimpleNamespace(sleep=lambda _: advance(daemon.node, 10), monotonic=lambda: 0.0, time=lambda: 0.0)
            patch.setattr(api_node, "time", clock)
            yield daemon
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join()
            loop.close()
