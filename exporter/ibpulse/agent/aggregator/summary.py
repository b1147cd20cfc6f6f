"""All statistics of one window, computed from the ring on request.

They come from the same code as the running totals, applied only to the seconds of the window, with the states of the
ports at that time. Therefore a window of the past has the same statistics whenever it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ibpulse.agent.aggregator.snapshot import AggregatorOptions
from ibpulse.agent.aggregator.steps import measure_resolution, measure_step
from ibpulse.agent.aggregator.totals import RunningTotals, ports_during, split_seconds
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.summary import NO_RAIL, NodeSummary, PortSummary, RunSummary, Summary
from ibpulse.core.arrays import Rows
from ibpulse.core.events import PortHistory
from ibpulse.core.events.watch import DISAPPEARED
from ibpulse.core.jobs import JobPorts, JobRecord, jobs_between
from ibpulse.core.model import Port
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.ring.spans import RingPort, place_ports, settled_tick, widest_stride
from ibpulse.core.statistics.moments import or_none
from ibpulse.core.statistics.rates import finest_ticks
from ibpulse.core.statistics.steps.period import StepPeriod
from ibpulse.core.statistics.sums import OBSERVED


def summarize(
    reader: RingReader,
    known: Sequence[Port],
    history: PortHistory,
    options: AggregatorOptions,
    seconds: int,
    end_ns: int | None,
    now_ns: int | None = None,
    *,
    jobs: Iterable[JobRecord] = (),
    had: JobPorts | None = None,
) -> Summary:
    """The summary of the newest `seconds` whole seconds, or of those before the wall time `end_ns`.

    It has those of the `known` ports that existed in these seconds according to the history, and those that the
    history does not know. Rails are compared with those that had the same `jobs` in these seconds. With `had`, it has
    the ports that a job had, and only the samples at which it had them.
    """
    slots = reader.ring.slots()
    placed = place_ports(reader, known, slots)
    ticks = SECOND_NS // reader.interval_ns
    newest = settled_tick(reader, widest_stride(port.stride for port in placed), now_ns)
    end = (newest if end_ns is None else min(newest, reader.tick_at(end_ns))) // ticks
    first = max(0, end - seconds)
    span = first * ticks + 1, end * ticks + 1
    existed, ever = history.during(*span), set(history.names())
    placed = [port for port in placed if str(port.port.id) in existed or str(port.port.id) not in ever]
    if had is not None:
        had = had.within(*span)
        placed = [port for port in placed if str(port.port.id) in had.spans]
    ports = ports_during(placed, history, *span)
    narrowed = replace(
        options,
        windows_ns=(seconds * SECOND_NS,),
        traffic_window_ns=seconds * SECOND_NS,
        balance_spans_seconds=(seconds,),
    )
    totals = RunningTotals(reader, narrowed, history, had=had)
    rows = totals.rows_of(ports, slots)
    resolutions = [_resolution_ticks(reader, port, end * ticks, options.active_bytes_per_second) for port in ports]
    # so that the line rate is that of the last second in which the job had a port
    begin, stop = (first, end) if had is None else _seconds_of(had, first, end, ticks)
    for start, after, then in split_seconds(placed, history, begin, stop, ticks, totals.seconds_at_once(len(ports))):
        totals.add(start, after, then, rows, resolutions, True)
    if stop < end:
        totals.push_holes(end - stop)
    start_ns, stop_ns = reader.wall_ns(np.array([first * ticks, end * ticks])).tolist()
    totals.siblings.follow(jobs_between(jobs, start_ns, stop_ns))
    totals.conclude(ports, rows, resolutions, range(end, end + 1), counting=False)
    return Summary.model_construct(
        window_seconds=seconds,
        start_ms=start_ns // 1_000_000,
        end_ms=stop_ns // 1_000_000,
        node=_node(totals, narrowed, ports, resolutions, _find_step(reader, ports, resolutions, span, had)),
        ports=_ports(totals, ports, rows, resolutions, seconds, _last_words(ports, history, end * ticks)),
    )


def _resolution_ticks(reader: RingReader, port: RingPort, last_tick: int, threshold: float) -> int:
    """Ticks of the finest statistic that the port's counters resolved in the minute up to a tick."""
    seconds = measure_resolution(reader, port, last_tick, threshold)
    return finest_ticks(or_none(seconds), reader.interval_ns, port.stride)


def _last_words(ports: Sequence[RingPort], history: PortHistory, tick: int) -> list[str]:
    """The states of the links at a tick, in words."""
    names, known = [str(port.port.id) for port in ports], set(history.names())
    states = [history.at(name, tick) for name in names]
    return [
        (state.state if state else DISAPPEARED) if name in known else port.port.state
        for name, state, port in zip(names, states, ports, strict=True)
    ]


def _seconds_of(had: JobPorts, first: int, end: int, ticks: int) -> tuple[int, int]:
    """The seconds from the first in which a job had a port to the last, of those up to `end`, exclusive."""
    spans = [span for each in had.spans.values() for span in each]
    if not spans:
        return first, first
    return max(first, (min(a for a, _ in spans) - 1) // ticks), min(end, -(-(max(b for _, b in spans) - 1) // ticks))


def _find_step(
    reader: RingReader,
    ports: list[RingPort],
    resolutions: list[int],
    span: tuple[int, int],
    had: JobPorts | None,
) -> StepPeriod:
    """The step of a span of ticks; of a job, that of the longest part in which it had the same ports throughout."""
    names = {str(port.port.id) for port in ports}
    if had is not None:
        span = had.steady(*span)
        names = {*had.within(*span).spans}
    rails = [
        index for index, port in enumerate(ports) if port.port.rail and port.port.active and str(port.port.id) in names
    ]
    length_ns = max(1, span[1] - span[0]) * reader.interval_ns
    return measure_step(
        reader, [ports[index] for index in rails], [resolutions[index] for index in rails], span[1] - 1, length_ns
    )


def _node(
    totals: RunningTotals,
    options: AggregatorOptions,
    ports: list[RingPort],
    resolutions: list[int],
    step: StepPeriod,
) -> NodeSummary:
    rails = [index for index, port in enumerate(ports) if port.port.rail and port.port.active]
    window = totals.node.windows(max((resolutions[index] for index in rails), default=1))[0]
    traffic = totals.describe_traffic(step)
    bursts, gaps = traffic.burst_durations, traffic.gap_durations
    return NodeSummary.model_construct(
        **vars(totals.describe_rails(sum(port.port.rail for port in ports))),
        **vars(window),
        **vars(traffic.concluded),
        observed_seconds=totals.node.observed_seconds(options.window_seconds()[0]),
        bursts=_runs(bursts.cumulative[-1], bursts.total, traffic.burst_bytes),
        gaps=_runs(gaps.cumulative[-1], gaps.total, None),
    )


def _runs(count: int, seconds: float, moved_bytes: float | None) -> RunSummary:
    return RunSummary.model_construct(
        count=count,
        mean_seconds=seconds / count if count else None,
        mean_bytes=moved_bytes / count if count and moved_bytes is not None else None,
    )


def _ports(
    totals: RunningTotals, ports: list[RingPort], rows: Rows, resolutions: list[int], seconds: int, states: list[str]
) -> list[PortSummary]:
    observed = totals.table.sums.sum(seconds)[rows][:, 0, OBSERVED].tolist()
    (ways,) = totals.table.describe(rows, ports, [ticks == 1 for ticks in resolutions], [seconds])
    return [
        PortSummary.model_construct(
            port=str(port.port.id),
            state=state,
            rail=port.port.rail,
            observed_seconds=seen,
            transmit=transmit,
            receive=receive,
            bursts=int(totals.bursts.port_began[row]),
            burst_seconds=float(totals.bursts.port_seconds[row]),
            **vars(totals.balance.rails.get(str(port.port.id), NO_RAIL)),
        )
        for port, row, state, seen, (transmit, receive) in zip(ports, rows, states, observed, ways, strict=True)
    ]
