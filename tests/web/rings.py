"""Real ring files with traffic in closed form, and the same traffic computed by hand.

Port `mlx5_<i>:1` sends `25 + i` bytes per ns at the ticks whose remainder by 100 lies below 20 and nothing else; it
receives `i + 1` bytes per ns at all ticks. Reads jitter by up to 0.4 ms, in steps that keep the words whole numbers.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from ibpulse.agent.aggregator import AggregatorOptions, Snapshot
from ibpulse.agent.aggregator.aggregator import LimitTotals
from ibpulse.agent.aggregator.summary import summarize
from ibpulse.agent.flightrecorder.recorder import Captures, FlightRecorder
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.flightrecorder.triggers import AlertReceiver, LocalRules, RuleOptions
from ibpulse.agent.jobs.watch import NOTHING, JobsView
from ibpulse.agent.web.parts import WebLimits, WebParts
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import Summary
from ibpulse.core.events import EventLog, PortHistory
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.model import ByteSource, Fabric, Port, PortId, PortIdentity, PortState
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.signals import Signal
from tests.ring.writing import put_signals

INTERVAL_NS = 10_000_000
CAPACITY = 4096
# wall tick of 2025-11-21T00:00:00Z
EPOCH = 1_763_683_200 * 100
RATE = 50e9


def instant_ns(tick: int) -> int:
    """Monotonic time of the transmit read of a tick; even a multiple of 8, so that words come out whole."""
    return tick * INTERVAL_NS + (tick * 7919 % 50_000) * 8


def sent(tick: int, port: int) -> int:
    """Bytes per ns between the tick before and this one."""
    return 25 + port if tick % 100 < 20 else 0


def received(_tick: int, port: int) -> int:
    return port + 1


@dataclass
class Node:
    """A ring that a test fills, and the traffic in it: `rates[port, direction, wall tick]` in bytes per second.

    A port in `silent` moves nothing at these ticks; one in `absent` has no sample of them.
    """

    ring: RingFile
    slots: dict[str, int]
    now_tick: int = EPOCH
    rates: dict[tuple[str, int, int], float] = field(default_factory=dict)
    counters: dict[tuple[str, int], int] = field(default_factory=dict)
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    silent: dict[str, range] = field(default_factory=dict)
    absent: dict[str, range] = field(default_factory=dict)

    def run(self, first: int, count: int, missed: Sequence[int] = (), unread: Mapping[int, int] = {}) -> None:
        """Sample all ports at `count` ticks from `first` on, but not at `missed`; `unread` is tick -> direction."""
        for number, (name, slot) in enumerate(self.slots.items()):
            for tick in range(first, first + count):
                gone = tick in missed or tick in self.absent.get(name, ())
                self._tick(name, number, slot, tick, gone, unread.get(tick))
        self.ring.words[at.lane_at(0) + at.L_TICK] = first + count - 1

    def _tick(self, name: str, number: int, slot: int, tick: int, missed: bool, unread: int | None) -> None:
        elapsed = instant_ns(tick) - instant_ns(tick - 1)
        words = [0] * at.RECORD_WORDS
        words[at.R_TICK], words[at.R_BEFORE] = tick, instant_ns(tick)
        words[at.R_BETWEEN], words[at.R_AFTER] = instant_ns(tick) + 800, instant_ns(tick) + 1600
        for direction, law in enumerate((sent, received)):
            rate = 0 if tick in self.silent.get(name, ()) else law(tick, number)
            moved = rate * elapsed
            assert moved % 4 == 0
            key = (name, direction)
            self.counters[key] = self.counters.get(key, 1000) + moved // 4
            good = not missed and unread != direction
            words[at.R_TRANSMIT + direction] = self.counters[key] if good else at.ABSENT
            wall = tick - self.shift(tick)
            self.rates.pop((name, direction, wall), None)
            if good and self.last.get(key) == tick - 1:
                self.rates[name, direction, wall] = rate * 1e9
            if good:
                self.last[key] = tick
        if not missed:
            begin = at.records_at(slot, self.ring.capacity) + tick % self.ring.capacity * at.RECORD_WORDS
            for offset, word in enumerate(words):
                self.ring.words[begin + offset] = word

    def shift(self, tick: int) -> int:
        return [shift for begin, shift in self.ring.segments() if begin <= tick][-1]

    def expected(self, name: str, direction: int, first: int, points: int, width: int, fold: Callable) -> list:
        """Values of bins by plain arithmetic: `fold` of each bin's good samples, None in holes."""
        values: list[float | None] = []
        for begin in range(first, first + points * width, width):
            bin_ticks = range(begin, begin + width)
            good = [self.rates[key] for tick in bin_ticks if (key := (name, direction, tick)) in self.rates]
            values.append(fold(good) if good else None)
        return values

    def now_ns(self) -> int:
        """The wall time at which tick `now_tick` is the newest complete one."""
        return (self.now_tick + 6) * INTERVAL_NS + 1

    def parts(self, **changes: Any) -> WebParts:
        """Parts around this ring, as `given_parts`."""
        ports: Callable = changes.get("fabric", lambda: fabric(self.slots))
        given: dict[str, Any] = {
            "reader": RingReader(self.ring),
            "fabric": ports,
            "slots": lambda: self.slots,
            "known_ports": lambda: tuple(
                KnownPort(port, state_of(port), problem=port.problem) for port in ports().ports
            ),
            "summarize": lambda seconds, end_ns, had=None: summarize(
                RingReader(self.ring),
                fabric(self.slots).ports,
                PortHistory(),
                AggregatorOptions(),
                seconds,
                end_ns,
                self.now_ns(),
                had=had,
            ),
            "version": "1.2.3",
            "wall_clock_ns": self.now_ns,
        }
        return given_parts(**{**given, **changes})


@dataclass
class GivenSupervisor:
    give_slots: Callable[[], Mapping[str, int]]
    known_ports: Callable[[], tuple[KnownPort, ...]]
    heartbeat_age_seconds: Callable[[], float | None]

    @property
    def slots(self) -> Mapping[str, int]:
        return self.give_slots()


@dataclass
class GivenJobs:
    give: Callable[[], JobsView]

    @property
    def view(self) -> JobsView:
        return self.give()


def given_parts(
    *,
    reader: RingReader,
    fabric: Callable[[], Fabric],
    slots: Callable[[], Mapping[str, int]],
    known_ports: Callable[[], tuple[KnownPort, ...]],
    summarize: Callable[..., Summary],
    wall_clock_ns: Callable[[], int],
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
    name: str = "node7",
    heartbeat_age_seconds: Callable[[], float | None] = lambda: 0.02,
    ready: Callable[[], tuple[bool, str]] = lambda: (True, "Ready: every port was sampled."),
    events: EventLog | None = None,
    jobs: Callable[[], JobsView] = lambda: NOTHING,
    snapshot: Callable[[], Snapshot | None] = lambda: None,
    captures: Captures | None = None,
    **server: Any,
) -> WebParts:
    """The parts of a server over a node that says what is given; `server` are those of the server itself."""
    clock: Any = SimpleNamespace(time_ns=wall_clock_ns, monotonic_ns=monotonic_ns)
    node: Any = SimpleNamespace(
        name=name,
        clock=clock,
        reader=reader,
        events=EventLog() if events is None else events,
        supervisor=GivenSupervisor(slots, known_ports, heartbeat_age_seconds),
        jobs=GivenJobs(jobs),
        silences=SimpleNamespace(verdicts=list),
        aggregator=SimpleNamespace(limits=LimitTotals(reader, PortHistory(), AggregatorOptions())),
        captures=captures or given_captures(FlightRecorder(reader, CaptureOptions(Path("nowhere"), name), clock), name),
        fabric=fabric,
        readiness=ready,
        summarize=summarize,
    )
    current: Any = SimpleNamespace(get=snapshot, get_now=snapshot)
    return WebParts(node=node, current=current, **{"limits": WebLimits(), "registry": CollectorRegistry(), **server})


def given_captures(
    recorder: FlightRecorder, name: str, *, allow_unauthenticated: bool = False, cooldown_ns: int = 0
) -> Captures:
    """Captures of a node that nothing but requests and alerts triggers."""
    return Captures(
        recorder=recorder,
        rules=LocalRules((), 0, RuleOptions()),
        alert_receiver=AlertReceiver((name,), cooldown_ns),
        default_span_ns=(5 * SECOND_NS, SECOND_NS),
        allow_unauthenticated=allow_unauthenticated,
    )


def state_of(port: Port) -> PortState:
    problem = "" if port.source else "no-counters"
    return PortState(port.state, "LinkUp", port.active, port.rate_bytes_per_second, port.rail, problem=problem)


def fabric(names: Sequence[str] | Mapping[str, int]) -> Fabric:
    ports = [port(name) for name in names]
    dark = Port(PortId("mlx5_9", 1), PortIdentity(), False, "DOWN", None, None, problem="no file counts its bytes")
    return Fabric((*ports, dark), notices=("One device has no counters: mlx5_9.",))


def port(name: str, rate: float | None = RATE) -> Port:
    device, _, number = name.rpartition(":")
    source = ByteSource("counters", ("/x",), ("/r",), 4)
    identity = PortIdentity(link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)")
    return Port(PortId(device, int(number)), identity, rate is not None, "ACTIVE", rate, source, rail=True)


SIGNALS = (Signal("packet_sequence_errors", 32, stops=True), Signal("port_transmit_wait", 32, stops=True))


def make_node(
    directory: Path, ports: Sequence[str] = ("mlx5_0:1", "mlx5_1:1"), capacity: int = CAPACITY, readings: int = 0
) -> Node:
    """A node whose ring begins at wall tick `EPOCH`, with nothing in it yet; it has room for readings of signals."""
    ring = RingFile.create(directory / "ring", INTERVAL_NS, capacity, signal_capacity=readings)
    ring.begin_segment(EPOCH, 0)
    return Node(ring, {name: ring.assign(name, 4, 1) for name in ports})


def full_node(directory: Path) -> Node:
    """A node with 1,000 ticks, of which a few were missed or read in one direction alone.

    The signals of the first port are read at every tenth tick from the fifth on, and wait for 3 ticks more each time.
    """
    records, filled = _thousand_ticks()
    node = make_node(directory, readings=CAPACITY // 10)
    node.ring.assign_signals(0, SIGNALS, 1)
    for number, tick in enumerate(range(EPOCH + 5, EPOCH + 1000, 10)):
        put_signals(node.ring, 0, tick, (7, 3 * number), [instant_ns(tick)] * 3)
    node.ring.words[at.records_at(0, CAPACITY) : at.records_at(2, CAPACITY)] = records
    node.ring.words[at.lane_at(0) + at.L_TICK] = EPOCH + 999
    return replace(
        filled,
        ring=node.ring,
        slots=node.slots,
        rates=dict(filled.rates),
        counters=dict(filled.counters),
        last=dict(filled.last),
        silent={},
        absent={},
    )


@functools.cache
def _thousand_ticks() -> tuple[memoryview, Node]:
    """The records of a full node, and what else it knows; made once."""
    with tempfile.TemporaryDirectory() as directory:
        node = make_node(Path(directory))
        node.run(EPOCH, 1000, missed=(EPOCH + 305, EPOCH + 306, EPOCH + 555), unread={EPOCH + 700: 0, EPOCH + 710: 1})
        node.now_tick = EPOCH + 999
        with node.ring.words[at.records_at(0, CAPACITY) : at.records_at(2, CAPACITY)] as words:
            records = memoryview(bytes(words)).cast("Q")
        node.ring.close()
        return records, node
