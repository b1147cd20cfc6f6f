"""The query of a window, its checks, and the plan that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from ibpulse.analysis.bins import Statistic
from ibpulse.model import DIRECTIONS
from ibpulse.units import format_duration
from ibpulse.web.parameters import INSTANT_FORMS, OptionalDuration, OptionalInstant, read_duration, read_instant
from ibpulse.web.parts import WebLimits, WebParts
from ibpulse.web.problems import ProblemError, bad_parameter
from ibpulse.web.window.values import Bins, Unit, WindowPlan, bins_between, newest_bins

DEFAULT_LAST = "5s"
Direction = Literal["transmit", "receive", "both"]
Format = Literal["json", "csv", "npy", "grafana"]


class WindowQuery(BaseModel):
    """The query of `/api/v1/window` as it is written."""

    model_config = ConfigDict(extra="forbid")

    last: OptionalDuration = Field(None, description=f"Newest span, like 5s or 1m; {DEFAULT_LAST} by default.")
    from_: OptionalInstant = Field(None, alias="from", description=INSTANT_FORMS + "Included.")
    to: OptionalInstant = Field(None, description=INSTANT_FORMS + "Not included; now by default.")
    port: list[str] = Field(
        default_factory=list,
        description="A port (mlx5_0:1) or all ports of a device (mlx5_0); repeatable. All sampled ports by default.",
    )
    direction: Direction = Field("both", description="Which way the bytes went, as the port sees it.")
    unit: Unit = Field("bytes", description="Bytes per second, or the share of the port's data rate.")
    resolution: OptionalDuration = Field(None, description="Width of a bin: a multiple of the interval.")
    max_points: Annotated[
        int | None, Field(ge=2, le=10_000_000), WithJsonSchema({"type": "integer", "minimum": 2, "maximum": 10_000_000})
    ] = Field(None, description="Widen the bins until no more are needed.")
    statistic: Statistic = Field("max", description="What a bin says of its good samples.")
    format: Format = Field("json", description="How the answer is written.")


def plan_window(query: WindowQuery, parts: WebParts) -> WindowPlan:
    """The plan of a query.

    Raises:
        ProblemError: a parameter cannot be used, a port is not known, or the answer would be too large.
    """
    names, slots = _ports(query.port, parts)
    known = {str(port.id): port.rate_bytes_per_second for port in parts.fabric().ports}
    plan = WindowPlan(
        ports=names,
        slots=slots,
        rates=tuple(known.get(name) for name in names),
        directions=tuple(range(2)) if query.direction == "both" else (DIRECTIONS.index(query.direction),),
        interval_ns=parts.reader.interval_ns,
        bins=_bins(query, parts),
        statistic=query.statistic,
        unit=query.unit,
    )
    _refuse_too_many(plan, parts.limits)
    return plan


def _ports(wanted: Sequence[str], parts: WebParts) -> tuple[tuple[str, ...], tuple[int, ...]]:
    slots = parts.slots()
    if not wanted:
        names = [str(port.id) for port in parts.fabric().ports if port.source and str(port.id) in slots]
        return tuple(names), tuple(slots[name] for name in names)
    if len(wanted) > parts.limits.max_ports:
        raise bad_parameter("port", f"{len(wanted)} ports are asked for, at most {parts.limits.max_ports} may be")
    chosen: dict[str, int] = {}
    for text in wanted:
        found = {name: slot for name, slot in slots.items() if text in (name, name.rpartition(":")[0])}
        if not found:
            raise _unknown_port(text, parts, sorted(slots))
        chosen |= found
    return tuple(chosen), tuple(chosen.values())


def _unknown_port(text: str, parts: WebParts, sampled: Sequence[str]) -> ProblemError:
    for port in parts.fabric().ports:
        if str(port.id) == text:
            reason = f"Port {text} is not sampled: {port.problem or 'its first sample is not in yet'}."
            return ProblemError("unknown-port", 404, reason, known_ports=sampled)
    known = ", ".join(sampled) or "none"
    return ProblemError(
        "unknown-port", 404, f"There is no port {text[:64]!r} here; known ports: {known}.", known_ports=sampled
    )


def _bins(query: WindowQuery, parts: WebParts) -> Bins:
    interval_ns, now_ns = parts.reader.interval_ns, parts.wall_clock_ns()
    base = _base_width(query.resolution, interval_ns)
    if query.from_ is None:
        if query.to is not None:
            raise bad_parameter("to", "needs from; or ask for the newest span with last=5s")
        span_ns = read_duration("last", DEFAULT_LAST if query.last is None else query.last)
        return newest_bins(span_ns, now_ns, interval_ns, base, query.max_points)
    if query.last is not None:
        raise bad_parameter("last", "excludes from and to; give one or the other")
    from_ns = read_instant("from", query.from_)
    to_ns = now_ns if query.to is None else read_instant("to", query.to)
    _refuse_impossible(from_ns, to_ns, now_ns, query)
    return bins_between(from_ns, to_ns, now_ns, interval_ns, base, query.max_points)


def _refuse_impossible(from_ns: int, to_ns: int, now_ns: int, query: WindowQuery) -> None:
    if from_ns > now_ns:
        raise bad_parameter("from", f"{query.from_} is in the future; compare this node's clock with yours")
    if from_ns > to_ns:
        raise bad_parameter("from", f"{query.from_} is later than to={query.to}; swap them")


def _base_width(resolution: str | None, interval_ns: int) -> int:
    """Ticks of one bin as asked for."""
    if resolution is None:
        return 1
    wanted_ns = read_duration("resolution", resolution)
    width, rest = divmod(wanted_ns, interval_ns)
    if rest or not width:
        interval = format_duration(interval_ns)
        raise bad_parameter("resolution", f"{resolution} is not a multiple of the sampling interval, {interval}")
    return width


def _refuse_too_many(plan: WindowPlan, limits: WebLimits) -> None:
    values = plan.bins.points * plan.series
    if values > limits.max_values:
        raise ProblemError(
            "too-many-values",
            422,
            f"The window holds {values} values ({plan.bins.points} points of {plan.series} series), at most "
            f"{limits.max_values} may be asked for at once. Give max_points, a coarser resolution, a shorter span "
            "or fewer ports.",
            bound={"name": "max_values", "limit": limits.max_values, "asked": min(values, 2**63)},
        )
