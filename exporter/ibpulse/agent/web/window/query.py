"""Checks the query of a window and turns it into a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from ibpulse.agent.web.job_choice import JOB_HELP, OptionalJob, choose_job
from ibpulse.agent.web.parts import WebLimits, WebParts
from ibpulse.base.units import format_duration
from ibpulse.base.values import SOME_TIME
from ibpulse.core.http.parameters import OptionalDuration, SpanQuery, read_parameter
from ibpulse.core.http.problems import ProblemError, bad_parameter
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.ring.spans import widest_stride
from ibpulse.core.window_values import Bins, Statistic, Unit, WindowPlan, bins_between, newest_bins

DEFAULT_LAST = "5s"
Direction = Literal["transmit", "receive", "both"]
Format = Literal["json", "csv", "npy", "grafana"]


class WindowQuery(SpanQuery):
    """The query parameters of `/api/v1/window`, unparsed."""

    last: OptionalDuration = Field(
        None, description=f"Length of the newest span, like 5s or 1m (default: {DEFAULT_LAST})."
    )
    port: list[str] = Field(
        default_factory=list,
        description="A port (mlx5_0:1) or all ports of a device (mlx5_0); repeatable (default: all sampled ports).",
    )
    job: OptionalJob = Field(None, description=JOB_HELP)
    direction: Direction = Field("both", description="Direction of traffic, from the port's point of view.")
    unit: Unit = Field("bytes_per_second", description="Bytes per second, or the ratio to the port's data rate.")
    resolution: OptionalDuration = Field(None, description="Width of a bin: a multiple of the interval.")
    max_points: Annotated[
        int | None, Field(ge=2, le=10_000_000), WithJsonSchema({"type": "integer", "minimum": 2, "maximum": 10_000_000})
    ] = Field(None, description="Maximum number of bins; they are widened to fit.")
    statistic: Statistic = Field("max", description="Statistic of the valid samples in a bin.")
    uncertainty: bool = Field(False, description="Add the part by which each rate may be wrong, at most.")
    format: Format = Field("json", description="Format of the response.")


def plan_window(query: WindowQuery, parts: WebParts) -> WindowPlan:
    """The plan of a query.

    Raises:
        ProblemError: a parameter is invalid, a port or job is unknown, or the response would be too large.
    """
    chosen, job = _ports(query.port, parts), choose_job(parts, query.job)
    if job is not None:
        chosen = {name: slot for name, slot in chosen.items() if name in job.ports.spans}
    bins = _bins(query, parts, widest_stride(parts.node.reader.strides(list(chosen.values()))))
    partly: tuple[str, ...] = ()
    if job is not None:
        first, end = (
            parts.node.reader.tick_at(tick * parts.node.reader.interval_ns) for tick in (bins.first, bins.end)
        )
        had = job.ports.within(first, end).spans
        chosen = {name: slot for name, slot in chosen.items() if name in had}
        partly = tuple(name for name in chosen if list(had[name]) != [(first, end)])
    names = tuple(chosen)
    known = {str(port.port.id): port.port.rate_bytes_per_second for port in parts.node.supervisor.known_ports()}
    plan = WindowPlan(
        ports=names,
        slots=tuple(chosen.values()),
        rates=tuple(known.get(name) for name in names),
        directions=tuple(range(2)) if query.direction == "both" else (DIRECTIONS.index(query.direction),),
        interval_ns=parts.node.reader.interval_ns,
        bins=bins,
        statistic=query.statistic,
        unit=query.unit,
        history=parts.node.events.history,
        uncertainty=query.uncertainty,
        job=job,
        partly=partly,
    )
    _refuse_too_many(plan, parts.limits)
    return plan


def _ports(wanted: Sequence[str], parts: WebParts) -> dict[str, int]:
    """The slots of the chosen ports."""
    # a port that disappeared keeps its slot, and its past
    kept, known = (
        parts.node.reader.ring.slots(),
        [port.port for port in parts.node.supervisor.known_ports() if port.port.source],
    )
    slots = {name: kept[name] for port in known if (name := str(port.id)) in kept}
    if not wanted:
        return slots
    if len(wanted) > parts.limits.max_ports:
        raise bad_parameter("port", f"{len(wanted)} ports requested; the maximum is {parts.limits.max_ports}")
    chosen: dict[str, int] = {}
    for text in wanted:
        found = {name: slot for name, slot in slots.items() if text in (name, name.rpartition(":")[0])}
        if not found:
            raise _unknown_port(text, parts, sorted(slots))
        chosen |= found
    return chosen


def _unknown_port(text: str, parts: WebParts, sampled: Sequence[str]) -> ProblemError:
    for port in parts.node.supervisor.known_ports():
        if str(port.port.id) == text:
            reason = f"Port {text} is not sampled: {port.problem or 'waiting for its first sample'}."
            return ProblemError("unknown-port", 404, reason, known_ports=sampled)
    known = ", ".join(sampled) or "none"
    return ProblemError("unknown-port", 404, f"No such port: {text[:64]!r}. Known ports: {known}.", known_ports=sampled)


def _bins(query: WindowQuery, parts: WebParts, widest: int) -> Bins:
    interval_ns, now_ns = parts.node.reader.interval_ns, parts.node.clock.time_ns()
    base = _base_width(query.resolution, interval_ns)
    span = query.span(now_ns, DEFAULT_LAST)
    if span.newest:
        return newest_bins(span.length_ns, now_ns, interval_ns, base, query.max_points, widest)
    return bins_between(span.from_ns, span.to_ns, now_ns, interval_ns, base, query.max_points, widest)


def _base_width(resolution: str | None, interval_ns: int) -> int:
    """The requested width of a bin in ticks."""
    if resolution is None:
        return 1
    wanted_ns = read_parameter("resolution", resolution, SOME_TIME)
    width, rest = divmod(wanted_ns, interval_ns)
    if rest or not width:
        interval = format_duration(interval_ns)
        raise bad_parameter("resolution", f"{resolution} is not a multiple of the sampling interval, {interval}")
    return width


def _refuse_too_many(plan: WindowPlan, limits: WebLimits) -> None:
    values = plan.bins.points * plan.series * (2 if plan.uncertainty else 1)
    if values > limits.max_values:
        raise ProblemError(
            "too-many-values",
            422,
            f"The window has {values} values ({plan.bins.points} points of {plan.series} series); the maximum is "
            f"{limits.max_values}. Use max_points, a coarser resolution, a shorter span or fewer ports.",
            bound={"name": "max_values", "limit": limits.max_values, "asked": min(values, 2**63)},
        )
