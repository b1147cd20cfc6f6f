"""`/api/v1/window`: small windows in the event loop, wide ones in threads, a few in parallel."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from ibpulse.agent.web.jobs import JOB_HELP, OptionalJob, choose_job, describe_job_ports
from ibpulse.agent.web.parts import WebParts
from ibpulse.base.text import csv_text, first_names
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.answers.samples import (
    NPY_HEADER,
    NPY_TYPE,
    History,
    Implausible,
    WindowAnswer,
    WindowGrid,
    WindowHead,
    encode_npy,
)
from ibpulse.core.http.problems import GRAFANA_SCHEMA, ProblemError, bad_parameter, inline_parts, operation
from ibpulse.core.http.requests import (
    MAX_POINTS,
    RESOLUTION,
    STATISTIC,
    MaxPoints,
    OptionalDuration,
    SpanQuery,
    choose_bins,
)
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.ring.spans import widest_stride
from ibpulse.core.signals import MAX_SIGNALS
from ibpulse.core.statistics.gains import MISSING
from ibpulse.core.window_values import (
    UNCERTAINTY,
    Statistic,
    Unit,
    WindowPlan,
    WindowSignals,
    WindowValues,
    read_window,
)

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
    resolution: OptionalDuration = RESOLUTION
    max_points: MaxPoints = MAX_POINTS
    statistic: Statistic = STATISTIC
    uncertainty: bool = Field(False, description="Add the part by which each rate may be wrong, at most.")
    signals: bool = Field(False, description="Add what the congestion counters of the ports gained (format=json).")
    format: Format = Field("json", description="Format of the response.")


def plan_window(query: WindowQuery, parts: WebParts) -> WindowPlan:
    """The plan of a query."""
    if query.signals and query.format != "json":
        raise bad_parameter("signals", "signals are only in format=json")
    chosen, job = _ports(query.port, parts), choose_job(parts, query.job)
    if job is not None:
        chosen = {name: slot for name, slot in chosen.items() if name in job.ports.spans}
    widest = widest_stride(parts.node.reader.strides(list(chosen.values())))
    interval_ns, now_ns = parts.node.reader.interval_ns, parts.node.clock.time_ns()
    span = query.span(now_ns, DEFAULT_LAST)
    bins = choose_bins(span, query.resolution, query.max_points, now_ns, interval_ns, widest=widest)
    partly: tuple[str, ...] = ()
    if job is not None:
        first, end = (parts.node.reader.tick_at(tick * interval_ns) for tick in (bins.first, bins.end))
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
        interval_ns=interval_ns,
        bins=bins,
        statistic=query.statistic,
        unit=query.unit,
        history=parts.node.events.history,
        uncertainty=query.uncertainty,
        job=job,
        partly=partly,
        signals=query.signals,
    )
    _refuse_too_many(plan, parts)
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


def _refuse_too_many(plan: WindowPlan, parts: WebParts) -> None:
    limits, ring = parts.limits, parts.node.reader.ring
    values = plan.bins.points * plan.series * (2 if plan.uncertainty else 1)
    if plan.signals:
        ticks = min(plan.bins.points * plan.bins.width, ring.capacity)
        values += ticks * ring.signal_capacity // ring.capacity * len(plan.ports) * MAX_SIGNALS
    if values > limits.max_values:
        raise ProblemError(
            "too-many-values",
            422,
            f"The window has {values} values ({plan.bins.points} points of {plan.series} series); the maximum is "
            f"{limits.max_values}. Use max_points, a coarser resolution, a shorter span or fewer ports.",
            bound={"name": "max_values", "limit": limits.max_values, "asked": min(values, 2**63)},
        )


_NUMPY = orjson.OPT_SERIALIZE_NUMPY
CSV_TYPE = "text/csv; charset=utf-8"
NAMED_PORTS = 8


def write_window(window: WindowValues, wanted: Format) -> Response:
    """The response with a window in the requested format."""
    return {"json": _json, "csv": _csv, "npy": _npy, "grafana": _grafana}[wanted](window)


def _grid(window: WindowValues) -> WindowGrid:
    """The members that describe the values, including the number of missing ones; `job` only if the query names one.

    Models cost 12 µs more than dictionaries, 2 % of a window of 1 s with 8 ports.
    """
    plan, marks, holes = window.plan, window.marks, window.holes()
    step_ms = plan.bins.width * plan.interval_ns // MILLISECOND_NS
    edges_ns = plan.bins.first * plan.interval_ns, plan.bins.end * plan.interval_ns
    job: dict[str, Any] = {"job": describe_job_ports(plan.job, *edges_ns)} if plan.job else {}
    return WindowGrid.model_construct(
        interval_ms=plan.interval_ns // MILLISECOND_NS,
        resolution_ms=step_ms,
        statistic=plan.statistic,
        unit=plan.unit,
        start_ms=window.start_ms,
        end_ms=window.start_ms + plan.bins.points * step_ms,
        points=plan.bins.points,
        holes=holes,
        implausible=Implausible.model_construct(
            merged=marks.merged, unexplained=marks.unexplained, places=marks.places
        ),
        history=History.model_construct(oldest_ms=window.oldest_ms, newest_ms=window.newest_ms),
        coverage=_sentence(window, holes),
        **job,
    )


def _sentence(window: WindowValues, holes: int) -> str:
    plan = window.plan
    if plan.job and not plan.ports:
        return f"Job {plan.job.id} had none of the requested ports in this span, as far as is known."
    if not window.values.size:
        return "No bin of this span is complete yet." if plan.ports else "No ports are sampled."
    found = ["No values are missing."]
    if holes:
        found = [f"{holes} of {window.values.size} values are missing."]
        found += [f"The history begins at {window.oldest_ms} ms."] if window.start_ms < window.oldest_ms else []
    if plan.job and plan.partly:
        names = first_names(plan.partly, NAMED_PORTS)
        found.append(f"Job {plan.job.id} had {names} only for a part of the span; other samples are left out.")
    return " ".join(found)


def _json(window: WindowValues) -> Response:
    series: list[Any] = []
    for row, (port, direction) in enumerate(window.names()):
        # the members of `WindowSeries` with arrays, which orjson encodes without a Python object for each value
        series.append({"port": port, "direction": direction, "values": window.values[row]})
        if window.uncertainty is not None:
            series[-1][UNCERTAINTY] = window.uncertainty[row]
    signals: dict[str, Any] = {"signals": list(map(describe_signals, window.signals))} if window.plan.signals else {}
    answer = WindowAnswer.model_construct(**_grid(window).given(), series=series, **signals)
    return Response(answer.encode_given(), media_type="application/json")


def describe_signals(found: WindowSignals) -> dict[str, Any]:
    """The members of `SignalsAnswer`, with arrays."""
    gains = found.gains
    seconds = np.fmax.reduce(gains.seconds, axis=1, initial=np.nan)
    series = [
        {
            **signal._asdict(),
            **signal.meaning._asdict(),
            "counters": [None if value == MISSING else value for value in found.counters[:, column].tolist()],
            "gained": np.ascontiguousarray(gains.gained[:, column]),
            "full": np.ascontiguousarray(gains.full[:, column]),
        }
        for column, signal in enumerate(found.signals)
    ]
    return {"port": found.port, "time_ms": found.wall_ns // MILLISECOND_NS, "seconds": seconds, "series": series}


def _grafana(window: WindowValues) -> Response:
    unit = "percentunit" if window.plan.unit == "ratio" else "Bps"
    fields: list[dict[str, Any]] = [{"name": "time", "type": "time"}]
    fields += [{"name": " ".join(name), "type": "number", "config": {"unit": unit}} for name in window.names()]
    for name in window.columns()[len(window.names()) :]:
        fields.append({"name": name, "type": "number", "config": {"unit": "percentunit"}})
    frame = {
        "schema": {"name": "ibpulse", "meta": {"type": "heatmap-rows", "custom": _grid(window)}, "fields": fields},
        "data": {"values": [window.times_ms(), *window.table()]},
    }
    return Response(orjson.dumps(frame, AnswerPart.given, _NUMPY), media_type="application/json")


def _csv(window: WindowValues) -> Response:
    head = io.StringIO()
    csv.writer(head, lineterminator="\n").writerow(["time_ms", *map(csv_text, window.columns(window.plan.unit))])
    # orjson encodes the times and the values as a whole, which is a sixth faster than row by row: the text [1,2]
    # is split at its commas, [[0.5,null],[1.5,2.5]] between its rows; an empty text replaces null
    times = orjson.dumps(window.times_ms(), option=_NUMPY)[1:-1].split(b",")
    table = orjson.dumps(np.ascontiguousarray(window.table().T), option=_NUMPY).replace(b"null", b"")
    rows = table[len(b"[[") : -len(b"]]")].split(b"],[")
    lines = [b"%b,%b\n" % pair for pair in zip(times, rows, strict=True)] if window.values.size else []
    return Response(head.getvalue().encode() + b"".join(lines), media_type=CSV_TYPE)


def _npy(window: WindowValues) -> Response:
    about = WindowHead.model_construct(**_grid(window).given(), series=window.columns())
    # json, not orjson, because headers are ASCII only
    headers = {NPY_HEADER: json.dumps(about, default=AnswerPart.given, separators=(",", ":"))}
    return Response(encode_npy(window.table()), media_type=NPY_TYPE, headers=headers)


_HEAD = inline_parts(WindowHead.model_json_schema())
_ANSWER: dict[str, Any] = {
    "description": "The window. Missing samples are null in JSON, empty in CSV and NaN in NPY.",
    "headers": {
        NPY_HEADER: {
            "description": "With format=npy: interval, resolution, start, end, holes and names of the series as JSON.",
            "schema": {"type": "string", "contentMediaType": "application/json", "contentSchema": _HEAD},
        }
    },
    "content": {
        "application/json": {"schema": {"anyOf": [inline_parts(WindowAnswer.model_json_schema()), GRAFANA_SCHEMA]}},
        CSV_TYPE: {"schema": {"type": "string"}},
        NPY_TYPE: {"schema": {"type": "string", "format": "binary"}},
    },
}


def answer_window(parts: WebParts, plan: WindowPlan, wanted: Format) -> Response:
    """The response of a planned window."""
    return write_window(read_window(plan, parts.node.reader, parts.node.clock.time_ns()), wanted)


def is_wide(plan: WindowPlan, parts: WebParts) -> bool:
    """Whether the plan reads or returns too many values for the event loop."""
    ticks = min(plan.bins.points * plan.bins.width, parts.node.reader.capacity)
    read = 2 * len(plan.ports) * ticks
    return max(read, plan.bins.points * plan.series) > parts.limits.wide_values


def add_window(router: APIRouter, parts: WebParts) -> None:
    """The window route."""
    wide = parts.limits.wide_requests(
        "wide window requests are already running",
        f"at most {parts.limits.wide_values} values with max_points, fewer ports or a shorter span",
    )

    @router.get("/api/v1/window", **operation("get_window", _ANSWER, 404, 422, 503, repeatable=("port",)))
    async def window(request: Request, query: Annotated[WindowQuery, Query()]) -> Response:
        """Rates of single samples, or of bins of samples, on a regular grid of wall time."""
        plan = plan_window(query, parts)
        if is_wide(plan, parts):
            return await wide.run(request, answer_window, parts, plan, query.format)
        return answer_window(parts, plan, query.format)
