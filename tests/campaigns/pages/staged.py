"""A server over a ring with incidents at known times, for the page. It asserts nothing by itself.

Four rails send for 0.2 s of every second and receive all the time. The link of `mlx5_0:1` is down from 10 s to 15 s and
comes back with half of its data rate, `mlx5_1:1` disappears at 20 s, `mlx5_2:1` cannot be read from 20 s on, and
`mlx5_3:1` is well. Time goes on from 30 s at its usual pace.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from ibpulse.agent.aggregator import AggregatorOptions
from ibpulse.agent.aggregator.summary import summarize
from ibpulse.agent.jobs.watch import NOTHING, JobsView
from ibpulse.agent.web.app import create_app
from ibpulse.core.answers.summary import Summary
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.http.server import serve
from ibpulse.core.jobs import JobPorts, PlacedJob
from ibpulse.core.model import PortState
from tests.campaigns.pages.browser import Live, live
from tests.exposition.snapshots import node as snapshot_of_a_node
from tests.web.event_logs import view_jobs
from tests.web.rings import EPOCH, INTERVAL_NS, Node, fabric, make_node, port

PORTS = tuple(f"mlx5_{number}:1" for number in range(4))
FLAPPED, GONE, UNREADABLE, WELL = PORTS
BEGIN_MS = EPOCH * 10
FOREVER = EPOCH + 10**6
UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = replace(UP, state="DOWN", physical="Polling", active=False)
SLOWER = replace(UP, rate_bytes_per_second=25e9)
BLOCKED = replace(UP, problem="unreadable")
CAPTURE = "20251121T000012.000Z-rail-lost-1f6c0a2e.parquet"


def at_ms(seconds: float) -> int:
    """The wall time of a second of the story, in ms."""
    return BEGIN_MS + round(seconds * 1000)


def tick_of(seconds: float) -> int:
    return EPOCH + round(seconds * 100)


def stage(directory: Path) -> tuple[Node, EventLog]:
    """The ring with the first 30 s, and the log."""
    node = make_node(directory, PORTS, capacity=16384)
    node.silent[FLAPPED] = range(tick_of(10), tick_of(15))
    node.absent[GONE] = node.absent[UNREADABLE] = range(tick_of(20), FOREVER)
    node.run(EPOCH, 3000)
    node.now_tick = EPOCH + 2999
    log = EventLog()
    log.add(event(10, "link-down", FLAPPED, f"{FLAPPED} went down", before=UP, after=DOWN))
    log.add(event(12, "capture", "", f"took capture {CAPTURE}", details={"name": CAPTURE}))
    log.add(event(15, "link-up", FLAPPED, f"{FLAPPED} came up", before=DOWN, after=SLOWER))
    log.add(event(20, "disappeared", GONE, f"{GONE} disappeared", before=UP, after=None))
    log.add(event(20, "unreadable", UNREADABLE, f"{UNREADABLE} cannot be read", before=UP, after=BLOCKED))
    log.add(event(25, "role-change", WELL, f"{WELL} is a rail", before=UP, after=UP))
    return node, log


def event(seconds: float, kind: str, subject: str, text: str, **members: object) -> Event:
    tick = tick_of(seconds)
    return Event(tick * INTERVAL_NS, kind, subject, text, 10**9, tick=tick, **members)  # type: ignore[arg-type]


class Stage:
    """The server, and the log to which a test may add."""

    def __init__(self, directory: Path) -> None:
        self.node, self.log = stage(directory)
        (directory / "other").mkdir()
        snapshot = snapshot_of_a_node(directory / "other", 4)
        self.running: tuple[PlacedJob, ...] = ()
        self.parts = self.node.parts(
            events=self.log,
            known_ports=self.known,
            fabric=lambda: fabric([FLAPPED, UNREADABLE, WELL]),
            slots=lambda: {name: slot for name, slot in self.node.slots.items() if name != GONE},
            snapshot=lambda: snapshot,
            jobs=self.list_jobs,
            summarize=self.summarize,
        )
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def known(self) -> tuple[KnownPort, ...]:
        history = self.log.history
        texts = {GONE: "the port does not exist any more", UNREADABLE: "the files of the port cannot be read"}
        return tuple(KnownPort(port(name), history.now(name), None, texts.get(name, "")) for name in PORTS)

    def list_jobs(self) -> JobsView:
        return view_jobs(self.log, *self.running) if self.running else NOTHING

    def summarize(self, seconds: int, end_ns: int | None, had: JobPorts | None = None) -> Summary:
        ports = [each.port for each in self.known()]
        now_ns = self.node.now_ns()
        return summarize(
            self.parts.node.reader, ports, self.log.history, AggregatorOptions(), seconds, end_ns, now_ns, had=had
        )

    def change(self, kind: str, name: str, after: PortState | None) -> None:
        """A port changes its state now."""

        def add() -> None:
            seconds = (self.node.now_tick - EPOCH) / 100
            before = self.log.history.now(name)
            self.log.add(event(seconds, kind, name, f"{name}: {kind}", before=before, after=after))

        self._loop.call_soon_threadsafe(add)

    async def _run(self) -> None:
        server = await serve(create_app(self.parts), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.port}"
        self._begun.set()
        while not self.parts.ending.is_set():
            await asyncio.sleep(0.1)
            self.node.run(self.node.now_tick + 1, 10)
            self.node.now_tick += 10
        await server.stop()

    def start(self) -> None:
        self._thread.start()
        self._begun.wait(20)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self.parts.ending.set)
        self._thread.join(20)
        self.node.ring.close()


@contextmanager
def staged(directory: Path) -> Iterator[Stage]:
    """The server at work."""
    made = Stage(directory)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The server, for the tests of a file that imports it."""
    with staged(tmp_path_factory.mktemp("stage")) as found:
        yield found


@pytest.fixture(scope="module")
def shown(browser: Browser, story: Stage) -> Iterator[Live]:
    """Its page."""
    with live(browser, story.url) as found:
        found.context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield found


def held(shown: Live, view: str) -> None:
    """Show a view that is not live, and wait until it is drawn."""
    shown.open(view)
    shown.wait("held")
    shown.settle()
