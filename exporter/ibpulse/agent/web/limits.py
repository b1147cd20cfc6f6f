"""`/api/v1/limits`: signs of what limited the rails, in bins of 100 ms and as sentences."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ibpulse.agent.web.jobs import choose_job, describe_job_ports
from ibpulse.agent.web.node import SummaryQuery, choose_seconds
from ibpulse.agent.web.parts import WebParts
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.limits import LimitAnswer, LimitsAnswer, PortLimitsAnswer
from ibpulse.core.http.problems import operation, problems
from ibpulse.core.http.requests import refuse_repeated
from ibpulse.core.jobs import ChosenJob
from ibpulse.core.limits import CANNOT_KNOW, LEGEND, PortSigns, describe_signs
from ibpulse.core.ring.spans import place_ports, settled_tick, widest_stride
from ibpulse.core.statistics.limits import EVERY_NS
from ibpulse.core.statistics.moments import or_none


def add_limits(router: APIRouter, parts: WebParts) -> None:
    """The route of signs."""
    wide = parts.limits.wide_requests("limits are already being computed", "a shorter span instead")

    @router.get(
        "/api/v1/limits",
        **operation("get_limits"),
        responses={200: {"model": LimitsAnswer, "description": "The signs."}, **problems(404, 422, 503)},
        response_class=Response,
        dependencies=[refuse_repeated()],
    )
    async def limits(request: Request, query: Annotated[SummaryQuery, Query()]) -> Response:
        """Signs of what limited each rail while it transmitted: source, path, receiver, loss, link or unknown."""
        job, snapshot = choose_job(parts, query.job), parts.current.get()
        step = snapshot and job is None and snapshot.traffic.concluded.step_period_seconds
        return await wide.run(request, answer_limits, parts, *choose_seconds(query, parts), job, step or 0.0)


def answer_limits(parts: WebParts, seconds: int, end_ns: int | None, job: ChosenJob | None, steps: float) -> Response:
    """The response for `seconds` that end at a wall time, None for now, of a job if one is given.

    `steps` is the length of a step in seconds, 0 if it is unknown.
    """
    reader, peaks = parts.node.reader, parts.node.aggregator.limits.peaks
    ticks = _choose_ticks(parts, seconds, end_ns)
    rails = _read(parts, ticks, job)
    width = -(-EVERY_NS // reader.interval_ns)
    # a sample ends at its tick
    start_ns = int(reader.wall_ns(np.array([ticks.start - 1]))[0])
    length_ns = len(ticks) * reader.interval_ns
    found = describe_signs(rails, *((length_ns / SECOND_NS / steps, "step") if steps else (1, "")))
    answer = LimitsAnswer.model_construct(
        start_ms=start_ns // MILLISECOND_NS,
        bin_ms=width * reader.interval_ns // MILLISECOND_NS,
        bins=-(-len(ticks) // width),
        limits=[LimitAnswer.model_construct(**asdict(limit)) for limit in found],
        ports=[
            PortLimitsAnswer.model_construct(
                port=rail.name,
                usual_peak_bytes_per_second=or_none(peaks.get(rail.name, math.nan)),
                strip=rail.signs.strip(width),
                remarks=rail.remarks(),
            )
            for rail in rails
        ],
        legend=LEGEND,
        cannot_know=CANNOT_KNOW,
    )
    if job is not None:
        described = describe_job_ports(job, start_ns, start_ns + length_ns)
        answer = LimitsAnswer.model_construct(**answer.given(), job=described)
    return Response(answer.encode_given(), media_type="application/json")


def _choose_ticks(parts: WebParts, seconds: int, end_ns: int | None) -> range:
    """The ticks of whole seconds."""
    node, reader = parts.node, parts.node.reader
    per_second = SECOND_NS // reader.interval_ns
    strides = (reader.stride(slot) for slot in node.supervisor.slots.values())
    newest = settled_tick(reader, widest_stride(strides), node.clock.time_ns())
    end = (newest if end_ns is None else min(newest, reader.tick_at(end_ns))) // per_second
    return range(max(0, end - seconds) * per_second + 1, end * per_second + 1)


def _read(parts: WebParts, ticks: range, job: ChosenJob | None) -> list[PortSigns]:
    """The signs of the rails at ticks, of a job if one is given."""
    node, reader = parts.node, parts.node.reader
    rails = [known.port for known in node.supervisor.known_ports() if known.port.rail]
    placed = place_ports(reader, rails, reader.ring.slots())
    if job is not None:
        had = job.ports.within(ticks.start, ticks.stop).spans
        placed = [port for port in placed if str(port.port.id) in had]
    if not ticks or not placed:
        return []
    # the first and the last sample lie between two readings
    more = SECOND_NS // reader.interval_ns
    around = range(max(1, ticks.start - more), max(ticks.stop, min(ticks.stop + more, reader.ring.latest_tick() + 1)))
    found = node.aggregator.limits.read(placed, around)
    inner = slice(ticks.start - around.start, ticks.stop - around.start)
    found = [replace(rail, signs=rail.signs.cut(inner.start, inner.stop)) for rail in found]
    if job is not None:
        kept = job.ports.mask([rail.name for rail in found], ticks.start, len(ticks))
        found = [replace(rail, signs=rail.signs.only(mine)) for rail, mine in zip(found, kept, strict=True)]
    return found
