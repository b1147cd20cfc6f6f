"""Real ring files with traffic whose statistics have closed forms, written word by word as the sampler would."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions, Snapshot
from ibpulse.core.jobs import PlacedJob
from ibpulse.core.model import ByteSource, Fabric, Port, PortId, PortIdentity
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import ticks_to_settle

RATE = 50e9
MS = 1_000_000

# bytes per second at a tick
Traffic = Callable[[int], float]


def port(
    name: str, *, active: bool = True, rate: float | None = RATE, rail: bool = True, source: str = "words"
) -> Port:
    device, _, number = name.partition(":")
    return Port(
        id=PortId(device, int(number or 1)),
        identity=PortIdentity(link_layer="InfiniBand", rate="400 Gb/sec (4X NDR)", guid="b8ce:f603:00aa:bb00"),
        active=active,
        state="ACTIVE" if active else "DOWN",
        rate_bytes_per_second=rate if active else None,
        source=ByteSource(source, ("/transmit",), ("/receive",), 4),
        rail=rail,
    )


def constant(bytes_per_second: float) -> Traffic:
    return lambda _: bytes_per_second


def square(high: float, on: int, off: int) -> Traffic:
    """`high` for `on` ticks, then nothing for `off` ticks; the first tick of a second (tick 1) is on."""
    return lambda tick: high if (tick - 1) % (on + off) < on else 0.0


@dataclass
class Ring:
    """A ring, its reader, and the fabric whose ports write into it."""

    file: RingFile
    reader: RingReader
    fabric: Fabric

    @classmethod
    def create(cls, path: Path, *ports: Port, interval_ms: int = 10, seconds: int = 400, first_tick: int = 1) -> Ring:
        file = RingFile.create(path / "ring", interval_ms * MS, seconds * 1000 // interval_ms)
        file.begin_segment(first_tick, 0)
        return cls(file, RingReader(file), Fabric(ports))

    @property
    def ticks_per_second(self) -> int:
        return 1_000_000_000 // self.file.interval_ns

    def change(self, *ports: Port) -> None:
        self.fabric = replace(self.fabric, ports=ports)

    def write(
        self,
        name: str,
        traffic: tuple[Traffic, Traffic],
        first: int,
        last: int,
        *,
        stride: int = 1,
        holes: Collection[int] = (),
        start: tuple[int, int] = (1000, 2000),
        scale: int = 4,
        absent: Collection[tuple[int, int]] = (),
        resets: Collection[int] = (),
        late_ns: Callable[[int], int] = lambda _: 0,
    ) -> tuple[int, int]:
        """Records of a port from tick `first` to `last`; gives the counters at the end.

        `traffic` is the rate in the interval that ends at a tick. `holes` are ticks without a record, `absent`
        (tick, direction) counters not read, `resets` ticks at which the counters begin anew at 0.
        """
        slot = self.file.assign(name, scale, stride)
        counters = [float(value) for value in start]
        seconds = self.file.interval_ns / 1e9
        for tick in range(first, last + 1):
            late = (late_ns(tick) - late_ns(tick - 1)) / 1e9
            for way in range(2):
                moved = traffic[way](tick) * (seconds + late) / scale
                counters[way] = 0.0 if tick in resets else counters[way] + moved
            if tick % stride == 0 and tick not in holes:
                values = [at.ABSENT if (tick, way) in absent else round(counters[way]) for way in range(2)]
                mark = tick | stride << at.STRIDE_SHIFT
                self._record(slot, mark, tick * self.file.interval_ns + late_ns(tick), values)
        self.file.words[at.lane_at(0) + at.L_TICK] = max(last, self.file.latest_tick())
        return round(counters[0]), round(counters[1])

    def _record(self, slot: int, mark: int, time_ns: int, counters: list[int]) -> None:
        tick = mark & at.TICK_MASK
        begin = at.records_at(slot, self.file.capacity) + tick % self.file.capacity * at.RECORD_WORDS
        words = {at.R_BEFORE: time_ns, at.R_BETWEEN: time_ns, at.R_AFTER: time_ns}
        words |= {at.R_TRANSMIT: counters[0], at.R_RECEIVE: counters[1], at.R_TICK: mark}
        for which, word in words.items():
            self.file.words[begin + which] = word

    def now_after(self, second: int) -> int:
        """A tick at which the seconds before `second` are complete, and the next is not."""
        return second * self.ticks_per_second + max(
            ticks_to_settle(self.file.interval_ns, 1), self.ticks_per_second // 4
        )


def started(path: Path, *ports: Port, options: AggregatorOptions | None = None, **ring: int) -> tuple[Ring, Aggregator]:
    """An empty ring of these ports, and an aggregator that reads it."""
    made = Ring.create(path, *ports, **ring)
    return made, Aggregator(made.reader, options or AggregatorOptions())


def update(ring: Ring, aggregator: Aggregator, second: int) -> Snapshot:
    """The snapshot with the seconds before `second`, and the ring's newest tick left as it is."""
    return aggregator.update(ring.fabric, ring.now_after(second))


def follow(ring: Ring, aggregator: Aggregator, first_second: int, last_second: int) -> Snapshot:
    """The last of the snapshots of an aggregator that is asked every second."""
    for second in range(first_second, last_second):
        update(ring, aggregator, second)
    return update(ring, aggregator, last_second)


class Player:
    """A ring to which ports transmit (and receive) up to a second, as the sampler writes it, and its aggregator."""

    def __init__(self, path: Path, flows: Mapping[str, Traffic | tuple[Traffic, Traffic]]) -> None:
        path.mkdir(exist_ok=True)
        self.flows = dict(flows)
        self.ring, self.aggregator = started(path, *map(port, flows))
        self._counters, self._written = dict.fromkeys(flows, (1000, 2000)), 0

    def write(self, second: int) -> int:
        """The tick at which the seconds before this one are complete."""
        newest = self.ring.now_after(second)
        for name, flow in self.flows.items():
            both = flow if isinstance(flow, tuple) else (flow, constant(0.0))
            start = self._counters[name]
            self._counters[name] = self.ring.write(name, both, self._written + 1, newest, start=start)
        self._written = newest
        return newest

    def play(self, second: int, jobs: Sequence[PlacedJob] | None) -> Snapshot:
        """The snapshot with the seconds before this one."""
        return self.aggregator.update(self.ring.fabric, self.write(second), jobs=jobs)
