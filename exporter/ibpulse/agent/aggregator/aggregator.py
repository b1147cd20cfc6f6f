"""The aggregator: reads every whole second of the ring once and maintains the values behind `/metrics`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ibpulse.agent.aggregator.jobs import JobTotals
from ibpulse.agent.aggregator.ports import CounterTotals, PortTable
from ibpulse.agent.aggregator.snapshot import (
    CARRYING,
    DOWN,
    IDLE,
    QUIET,
    AggregatorOptions,
    Observation,
    PortLimits,
    Snapshot,
)
from ibpulse.agent.aggregator.steps import PhaseWatch, Resolutions, StepWatch, plan_search, search_next
from ibpulse.agent.aggregator.summary import summarize
from ibpulse.agent.aggregator.totals import SECONDS_AT_ONCE, RunningTotals, read_sampler, split_seconds
from ibpulse.agent.aggregator.traffic import Conclusion, coarsest_rail
from ibpulse.base.units import SECOND_NS, format_duration, format_rate
from ibpulse.core.answers.summary import RailStatistics, Summary
from ibpulse.core.arrays import Floats, Rows
from ibpulse.core.events import PortHistory
from ibpulse.core.jobs import JobPorts, JobRecord, PlacedJob
from ibpulse.core.limits import LimitOptions, PortSigns, read_limits
from ibpulse.core.model import Fabric, Port, PortId
from ibpulse.core.ring.reader import GUARD_TICKS, RingReader
from ibpulse.core.ring.spans import AHEAD_SECONDS, RingPort, place_ports, ticks_to_settle, widest_stride
from ibpulse.core.statistics import moments
from ibpulse.core.statistics.plausible import MAX_BEFORE
from ibpulse.core.statistics.signs import BLIND, CODES, LINK, LOSS, PATH, PEAK, RECEIVER, SOURCE, WEAK
from ibpulse.core.statistics.steps.phases import Phase
from ibpulse.core.statistics.sums import COVERED, MOVED, usual_peak

log = logging.getLogger(__name__)

# Maximum distance between the clock and the ring at the start. A larger one means that the wall clock was stepped and
# the sampler has not noticed yet.
AGREE_SECONDS = 5
# How long a sample above the line rate is pointed out.
NOTICE_SECONDS = 60
ASSUMED_RATE = (
    "{port} is a rail whose data rate was never known: the line rate of the node assumes that of the fastest other "
    "rail. Its link has not been ACTIVE since the event log began, or its driver does not report the rate"
)


# a rate counts if one rail at least was observed for this part of the second
MIN_OBSERVED_SECONDS = 0.5


class AggregationSchedule:
    """Schedules the whole seconds of a ring, each once and in order.

    With T ticks per second, second `s` consists of the ticks `s * T + 1` to `(s + 1) * T`, whose rates cover exactly
    one second.
    """

    def __init__(self, interval_ns: int, capacity: int, longest_window_seconds: int) -> None:
        self.ticks_per_second = SECOND_NS // interval_ns
        self._interval_ns = interval_ns
        self._capacity = capacity
        self._longest = longest_window_seconds
        self.next_second: int | None = None

    def due(self, now_tick: int, latest_tick: int, widest: int) -> tuple[range, int]:
        """The seconds that have become due, and how many before them were overwritten.

        `widest` is the widest stride of the ports, `latest_tick` the newest sampled tick. If sampling has stopped, the
        seconds continue a little past it, so that windows drain.
        """
        end = (now_tick - ticks_to_settle(self._interval_ns, widest)) // self.ticks_per_second
        oldest = self._oldest_second(latest_tick, widest)
        if self.next_second is None:
            if not latest_tick or abs(now_tick - latest_tick) > AGREE_SECONDS * self.ticks_per_second:
                return range(0), 0
            self.next_second = max(end - self._longest, oldest)
        first = max(self.next_second, oldest)
        end = min(end, max(latest_tick // self.ticks_per_second, self.next_second) + AHEAD_SECONDS)
        if end <= first:
            return range(0), 0
        skipped, self.next_second = first - self.next_second, end
        return range(first, end), skipped

    def _oldest_second(self, latest_tick: int, widest: int) -> int:
        """The first second that the ring still holds completely, including the samples before it that it depends on."""
        oldest_tick = latest_tick - self._capacity + GUARD_TICKS + 1 + (MAX_BEFORE + 1) * widest
        return max(0, -(-(oldest_tick - 1) // self.ticks_per_second))


def _rate_words(port: Port) -> str:
    rate = port.rate_bytes_per_second
    return "" if rate is None else f" of {format_rate(round(rate))}"


class Aggregator:
    """Turns a ring into snapshots, whenever one is needed; each second is counted and concluded once, by itself.

    The history in the ring fills the windows at the start; counters start at 0 with the first second after it. Each
    second is judged by the states that `history` has for it; a port that it does not know counts as it is now.
    """

    def __init__(self, reader: RingReader, options: AggregatorOptions, history: PortHistory | None = None) -> None:
        self._reader = reader
        self._history = PortHistory() if history is None else history
        self._options = options
        self._schedule = AggregationSchedule(reader.interval_ns, reader.capacity, options.longest_seconds())
        self._ticks_per_second = self._schedule.ticks_per_second
        # None in an empty ring, until its first sample
        self._first_counted: int | None = -(-reader.ring.latest_tick() // self._ticks_per_second) or None
        self._phases = PhaseWatch(options.active_bytes_per_second, reader.interval_ns)
        self._jobs = JobTotals(reader, options)
        self._totals = RunningTotals(reader, options, self._history, self._phases, self._jobs)
        self.limits = LimitTotals(reader, self._history, options)
        self._step = StepWatch()
        self._resolutions = Resolutions(reader, options.active_bytes_per_second)
        self._counters = CounterTotals(options.xmit_wait_tick_bytes)
        self._windows = tuple(map(format_duration, options.windows_ns))
        self._seconds: list[Observation] = []
        self._skipped_seconds = 0
        self._notices: tuple[str, ...] = ()
        # those of the last snapshot
        self._placed: list[RingPort] = []
        self._rows: Rows = np.zeros(0, dtype=np.intp)

    def update(
        self,
        fabric: Fabric,
        now_tick: int,
        jobs: Sequence[PlacedJob] | None = None,
        counters_now: bool = True,
    ) -> Snapshot:
        """The snapshot up to the newest second that is complete at `now_tick`.

        With `counters_now`, the counters of ports end at the newest sample of each that no later one can revise.

        However many seconds have passed since the last call, each is judged by itself; if it is called every second,
        the result is the same.

        Rails are compared with those that have the same `jobs`. What the daemon knows without the ring is not in it.
        """
        placed = self._aggregate(fabric, now_tick, jobs or ())
        if counters_now:
            self._count_until(now_tick)
        end_tick = (self._schedule.next_second or 0) * self._ticks_per_second
        resolutions = [self._resolutions.ticks_of(port) for port in placed]
        noticed = self.with_notices(fabric)
        return Snapshot(
            end_tick=end_tick,
            end_wall_ns=self._wall_ns(end_tick),
            windows=self._windows,
            fabric=noticed,
            sampler=read_sampler(self._reader.ring),
            ports=self._totals.describe_ports(fabric.ports, placed, self._rows, self._resolutions),
            rails=self._totals.describe_rails(sum(port.rail for port in fabric.ports)),
            node=self._totals.node.windows(coarsest_rail(placed, resolutions)),
            traffic=self._totals.describe_traffic(self._step.found),
            skipped_seconds=self._skipped_seconds,
            counters=self._counters.update(fabric),
            phases=self._take_phases(placed, resolutions),
            seconds=self._take_seconds(),
            last_traffic_ns=self._wall_ns(self._totals.last_traffic),
            jobs=None if jobs is None else tuple(jobs),
            job_statistics=self._jobs.snapshots(),
            limits=self.limits.snapshots(),
        )

    def _aggregate(self, fabric: Fabric, now_tick: int, jobs: Sequence[PlacedJob]) -> list[RingPort]:
        """Aggregate the seconds that have become due; returns the ports of the fabric that are in the ring."""
        slots = self._reader.ring.slots()
        placed = place_ports(self._reader, fabric.ports, slots)
        rows = self._totals.rows_of(placed, slots)
        widest = widest_stride(port.stride for port in placed)
        due, skipped = self._schedule.due(now_tick, self._reader.ring.latest_tick(), widest)
        # also while no second is due, so that a job that has ended loses its statistics
        if self._schedule.next_second is not None:
            self._jobs.follow(jobs, self._schedule.next_second - 1)
        if due:
            self._skip(skipped)
            try:
                self._catch_up(due, placed, rows, jobs)
            except Exception:
                # part of it may be counted, so these seconds are not tried again
                self._skipped_seconds += len(due)
                raise
            self._measure_resolutions(due, placed, rows)
        self._update_notices(placed, rows)
        self._placed, self._rows = placed, rows
        return placed

    def with_counters_now(self, snapshot: Snapshot, now_tick: int) -> Snapshot:
        """The last snapshot, with the counters of its ports up to `now_tick`, as in `update`."""
        self._count_until(now_tick)
        return replace(
            snapshot,
            ports=self._totals.describe_ports(snapshot.fabric.ports, self._placed, self._rows, self._resolutions),
        )

    def with_notices(self, fabric: Fabric) -> Fabric:
        """The fabric, with notices of this aggregator; it may be called at any time.

        They are about ports that were above their line rate for no known reason in the last minute, and about rails
        whose rate is assumed.
        """
        return replace(fabric, notices=(*fabric.notices, *self._notices)) if self._notices else fabric

    def _update_notices(self, placed: Sequence[RingPort], rows: Rows) -> None:
        assumed = self._totals.assumed_rates
        if not self._notices and not assumed and not self._totals.table.counts.unexplained.any():
            return
        since = (self._schedule.next_second or 0) - NOTICE_SECONDS
        unexplained = self._totals.table.counts.unexplained[rows]
        found = [port.port for port, second in zip(placed, unexplained, strict=True) if second > 0 and second >= since]
        notices = tuple(
            f"{port.id} counts more than its line rate{_rate_words(port)} can carry: there is traffic within the "
            "adapter (loopback), or the rate is wrong"
            for port in found
        )
        notices += tuple(ASSUMED_RATE.format(port=port) for port in assumed)
        for notice in notices:
            if notice not in self._notices:
                log.warning("%s", notice)
        self._notices = notices

    def summarize(
        self,
        ports: Sequence[Port],
        seconds: int,
        end_ns: int | None = None,
        *,
        jobs: Iterable[JobRecord] = (),
        had: JobPorts | None = None,
    ) -> Summary:
        """Statistics of the newest whole seconds, or of those before a wall time; may run in another thread.

        `ports` are those that exist, and those that disappeared within the history. With `had`, only the ports of a job
        count, while it had them.
        """
        return summarize(self._reader, ports, self._history, self._options, seconds, end_ns, jobs=jobs, had=had)

    def _skip(self, seconds: int) -> None:
        if seconds:
            self._skipped_seconds += seconds
            log.warning(
                "aggregation fell behind: %d seconds are missing from all metrics, because the ring only holds %s",
                seconds,
                format_duration(self._reader.capacity * self._reader.interval_ns),
            )
            self._totals.push_holes(seconds)

    def _catch_up(self, due: range, placed: list[RingPort], rows: Rows, jobs: Sequence[PlacedJob]) -> None:
        resolutions = [self._resolutions.ticks_of(port) for port in placed]
        begin = min(due.stop, max(due.start, self._first_counted_second()))
        at_once = self._totals.seconds_at_once(len(placed))
        ports = placed
        for start, stop, ports in self._split(placed, due.start, begin, at_once):
            self._totals.add(start, stop, ports, rows, resolutions, counting=False)
        self._totals.siblings.follow(jobs)
        if begin == due.stop:
            _, rates = self._totals.conclude(ports, rows, resolutions, range(begin, begin + 1), counting=False)
        for start, stop, ports in self._split(placed, begin, due.stop, min(at_once, SECONDS_AT_ONCE)):
            self._totals.add(start, stop, ports, rows, resolutions, counting=True)
            ends = range(start + 1, stop + 1)
            concluded, rates = self._totals.conclude(ports, rows, resolutions, ends, counting=True)
            for end, second in zip(ends, concluded, strict=True):
                self._observe(end, ports, rows, second, stop - end)
        self.limits.count(placed, rows, self._totals.table, self._first_counted_second(), due.stop)
        quiet_ns = (due.stop * self._ticks_per_second - self._totals.last_traffic) * self._reader.interval_ns
        searches = [(self._step, plan_search(ports, resolutions, self._options.traffic_window_ns, quiet_ns))]
        searches += self._jobs.conclude(ports, rates, resolutions, due.stop, quiet_ns)
        for _ in range(min(len(due), len(searches))):
            search_next(self._reader, searches, due.stop)
        self._phases.note_period(self._step.found)

    def _measure_resolutions(self, due: range, placed: list[RingPort], rows: Rows) -> None:
        seconds = min(len(due), SECONDS_AT_ONCE)
        moved = self._totals.table.sums.sum(seconds)[rows][..., MOVED].sum(axis=-1)
        moving = [str(placed[index].port.id) for index in np.flatnonzero(moved)]
        self._resolutions.measure_next(placed, moving, seconds, due.stop * self._ticks_per_second)

    def _observe(self, end: int, ports: list[RingPort], rows: Rows, concluded: Conclusion, ago: int) -> None:
        """Note for the flight recorder the second that ended `ago` seconds before the newest one."""
        rails = [index for index, port in enumerate(ports) if port.port.rail]
        sums = self._totals.table.sums.sum(1, ago)[rows[rails]]
        covered = sums[:, 0, COVERED]
        # the sum of the mean rates of the rails, each over the time for which its bytes are known
        rate = float(np.nansum(moments.quotient(sums[..., MOVED].sum(axis=-1), covered)))
        step, end_tick = self._step.found, end * self._ticks_per_second
        self._seconds.append(
            Observation(
                end_tick=end_tick,
                end_wall_ns=self._reader.wall_of(end_tick),
                rate_bytes_per_second=rate if covered.max(initial=0.0) >= MIN_OBSERVED_SECONDS else None,
                step_seconds=None if step is None else moments.or_none(step.seconds),
                signature=concluded.signature,
                moe_saturated=concluded.moe_saturated,
                rails={
                    str(ports[index].port.id): _state(ports[index], concluded.rails.get(str(ports[index].port.id)))
                    for index in rails
                },
            )
        )

    def _first_counted_second(self) -> int:
        if self._first_counted is None:
            # windows reach back before the first sample, where no state held
            first_tick, _ = self._reader.ring.segments()[0]
            self._first_counted = (first_tick - 1) // self._ticks_per_second
        return self._first_counted

    def _split(
        self, placed: list[RingPort], first: int, end: int, at_once: int
    ) -> Iterator[tuple[int, int, list[RingPort]]]:
        return split_seconds(placed, self._history, first, end, self._ticks_per_second, at_once)

    def _count_until(self, now_tick: int) -> None:
        second = self._schedule.next_second
        if second is not None:
            first_tick = max(second, self._first_counted_second()) * self._ticks_per_second + 1
            self._totals.count_until(now_tick, first_tick, self._placed, self._rows)

    def _take_phases(self, ports: Sequence[RingPort], resolutions: Sequence[int]) -> tuple[Phase, ...]:
        found = self._phases.take()
        if not found:
            return ()
        uncertainty = max(coarsest_rail(ports, resolutions), widest_stride(port.stride for port in ports))
        return tuple(replace(phase, uncertainty=uncertainty) for phase in found)

    def _take_seconds(self) -> tuple[Observation, ...]:
        seconds, self._seconds = tuple(self._seconds), []
        return seconds

    def _wall_ns(self, tick: int) -> int | None:
        return self._reader.wall_of(tick) if tick else None


def _state(port: RingPort, found: RailStatistics | None) -> str:
    if not port.port.active:
        return DOWN
    if found is None or found.rail_share_ratio is None:
        return QUIET
    return IDLE if found.rail_idle else CARRYING


TRANSMIT = 0
EVERY_SECONDS = 15
"""The seconds that are counted at a time, as long as a usual scrape interval: each call costs nearly the same."""
MAX_BEHIND_SECONDS = 60
COUNTED = {
    "source": [SOURCE],
    "path": [PATH],
    "receiver": [RECEIVER],
    "loss": [LOSS],
    "link": [LINK],
    "usual-peak": [PEAK],
    "unknown": [WEAK, BLIND],
}
"""The codes of each label of the metric."""


class LimitTotals:
    """The seconds of each sign of the rails that have signals; a port without them has none.

    Intervals between two readings are counted when both are there, so that no interval is counted in part. `peaks` are
    the usual peaks of transmit by port name.
    """

    def __init__(self, reader: RingReader, history: PortHistory, options: AggregatorOptions) -> None:
        self._reader, self._history = reader, history
        self._options = LimitOptions(options.active_bytes_per_second, options.xmit_wait_tick_bytes)
        self._ticks = SECOND_NS // reader.interval_ns
        self._longest = options.longest_seconds()
        self._counted = 0
        self._until: dict[PortId, int] = {}
        self._seconds: dict[PortId, Floats] = {}
        self.peaks: dict[str, float] = {}

    def count(
        self, placed: Sequence[RingPort], rows: Rows, table: PortTable, first_second: int, end_second: int
    ) -> None:
        """Count from `first_second` on up to a second; `placed` are in the `rows` of the table."""
        end_second -= end_second % EVERY_SECONDS
        if end_second <= self._counted:
            return
        self._counted = end_second
        first_tick, last_tick = first_second * self._ticks + 1, end_second * self._ticks
        ring = self._reader.ring
        self._forget_others(ring.slots())
        chosen = [index for index, port in enumerate(placed) if port.port.rail and ring.signals(port.slot)]
        if not chosen or last_tick < first_tick:
            return
        ports = [placed[index] for index in chosen]
        self._find_peaks(ports, rows[chosen], table)
        oldest = last_tick - MAX_BEHIND_SECONDS * self._ticks
        begun = [max(self._until.get(port.port.id, first_tick - 1), oldest) for port in ports]
        # one second more, for a link that was down before the traffic
        ticks = range(max(1, min(begun) + 1 - self._ticks), last_tick + 1)
        found = self.read(ports, ticks)
        for port, mine, until in zip(ports, found, begun, strict=True):
            # after a second without readings, samples count without them
            end = max(ticks[0] + mine.signs.readings.known_end, last_tick + 1 - self._ticks)
            first = until + 1
            if end <= first:
                continue
            tally = mine.signs.cut(first - ticks[0], end - ticks[0]).tally()
            name = port.port.id
            self._seconds[name] = self._seconds.get(name, np.zeros(CODES)) + tally[:, 0]
            self._until[name] = end - 1

    def _forget_others(self, slots: Mapping[str, int]) -> None:
        self._until = {port: until for port, until in self._until.items() if str(port) in slots}
        self._seconds = {port: seconds for port, seconds in self._seconds.items() if str(port) in slots}
        self.peaks = {name: peak for name, peak in self.peaks.items() if name in slots}

    def read(self, ports: Sequence[RingPort], ticks: range) -> list[PortSigns]:
        """The signs of ports at consecutive ticks, by the usual peaks of now; may run in another thread."""
        return read_limits(self._reader, ports, self._history, ticks, self._options, dict(self.peaks))

    def _find_peaks(self, ports: Sequence[RingPort], rows: Rows, table: PortTable) -> None:
        peaks = table.peaks.values(self._longest)[:, rows, TRANSMIT]
        for port, mine in zip(ports, peaks.T, strict=True):
            self.peaks[str(port.port.id)] = usual_peak(mine, mine)

    def snapshots(self) -> tuple[PortLimits, ...]:
        """The seconds of each label of the ports that have signals."""
        return tuple(
            PortLimits(
                name, {label: float(found[codes].sum()) for label, codes in COUNTED.items()}, self.peaks[str(name)]
            )
            for name, found in self._seconds.items()
        )
