"""The routes of jobs across nodes: the list, the stream, windows, summaries and events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonError
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.jobs import VerdictsAnswer
from ibpulse.core.answers.node import EventsAnswer
from ibpulse.core.answers.samples import NPY_HEADER, NPY_TYPE, encode_npy
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.client.transport import NodeArray
from ibpulse.core.http import requests
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.problems import ProblemError, bad_parameter, model, operation, text
from ibpulse.core.http.requests import json_response
from ibpulse.core.http.stream import MEDIA_TYPE, EventStream, LastEventId
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.window_values import MAX_PLACES, Bins, Statistic
from ibpulse.gateway.captures import captures_router
from ibpulse.gateway.jobs import (
    FleetJob,
    JobNode,
    JobNumbers,
    Row,
    RowsQuery,
    SummarySpan,
    choose_job,
    choose_rows,
    find_lateness,
    list_jobs,
    rails_of,
)
from ibpulse.gateway.live import GONE_NODE, JobHub
from ibpulse.gateway.nodes.requests import Node, ask_node
from ibpulse.gateway.nodes.table import NodeState
from ibpulse.gateway.parts import GatewayParts
from ibpulse.gateway.samples import (
    NodeSamples,
    RailLineRates,
    ask_line_rates,
    ask_samples,
    bin_samples,
    common_interval,
    find_places,
)

SUMMARY_LAST = "10s"
MAX_SUMMARY_SECONDS = 60
# of all nodes together
MAX_EVENTS = 20_000
WINDOW_LAST = "5s"
MAX_VALUES = 1_000_000
MAX_SAMPLES = 40_000_000
# span of one reading, to bound the memory
SLICE_MS = 30_000
MAX_WINDOWS = 2
UNKNOWN_INTERVAL_NS = 10 * MILLISECOND_NS
PATH = "/api/v1/jobs/{job}"
MAX_SPANS = 4
JSON = "application/json"


def describe_jobs(states: Sequence[NodeState]) -> dict[str, Any]:
    """The answer of `/api/v1/jobs`: those that run first, then the last that ended.

    The rows of a node in `refused` are those of an earlier answer.
    """
    jobs = sorted(list_jobs(states).values(), key=lambda job: (job.ended[0] is not None, -(job.ended[0] or 0), job.key))
    unknown = [state.name for state in states if state.jobs is None or not state.jobs.known]
    refused = [{"node": state.name, "reason": state.jobs_problem} for state in states if state.jobs_problem]
    return {"jobs": list(map(_describe_job, jobs)), "unknown": unknown, "refused": refused}


def _describe_job(job: FleetJob) -> dict[str, Any]:
    nodes = [
        {
            "node": node,
            "ports": each.ports,
            "basis": each.basis,
            "running": each.running,
            **_moment("began", each.began_ms, each.began_uncertainty_ms),
            **_moment("ended", each.ended_ms, each.ended_uncertainty_ms),
        }
        for node, each in job.nodes.items()
    ]
    return {
        "job_id": job.key[1],
        "scheduler": job.key[0],
        "name": job.name,
        "namespace": next((each.namespace for each in job.nodes.values() if each.namespace), ""),
        "running": any(each.running for each in job.nodes.values()),
        **_moment("began", *job.began),
        **_moment("ended", *job.ended),
        "nodes": nodes,
    }


def _moment(name: str, time_ms: int | None, uncertainty_ms: int) -> dict[str, Any]:
    text = None if time_ms is None else format_rfc3339(time_ms * MILLISECOND_NS)
    return {name: text, f"{name}_ms": time_ms, f"{name}_uncertainty_ms": uncertainty_ms}


class JobSummaryQuery(requests.SpanQuery, RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/summary`, unparsed."""

    last: requests.OptionalDuration = Field(
        None, description=f"Length of the newest span in whole seconds, up to 1m (default: {SUMMARY_LAST})."
    )


async def summarize_job(parts: GatewayParts, text: str, query: JobSummaryQuery) -> dict[str, Any]:
    """The numbers of a job and its rows in a span of whole seconds."""
    states = {state.name: state for state in parts.table.rows()}
    job, rows = choose_rows(states, text, query.node, rails=query.rows == "rails")
    from_ms, to_ms = _choose_span(query, parts.clock.time_ns())
    window_ms = to_ms - from_ms
    nodes = {name: JobNode(each, states.get(name), GONE_NODE) for name, each in job.nodes.items()}

    async def ask(node: Node) -> tuple[NodeSamples, SummaryAnswer]:
        span = [("from", str(from_ms)), ("to", str(to_ms))]
        window = await ask_samples(node, job.text, span)
        samples = NodeSamples(window.head.interval_ms, window_ms).add(window)
        return samples, await ask_node(node, SummaryAnswer, "/api/v1/summary", [("job", job.text), *span])

    asked, _ = parts.nodes.choose(nodes)
    async for node, answer in parts.nodes.ask_each(asked, ask):
        data = nodes[node.name]
        if isinstance(answer, DaemonError):
            data.problem = (answer.kind, str(answer))
        else:
            data.problem, (data.samples, data.summary) = ("", ""), answer
    span = SummarySpan(to_ms, window_ms, window_ms)
    numbers = JobNumbers(nodes, find_lateness(nodes, window_ms), span, parts.verdicts.of(job.key))
    return {"window_seconds": window_ms // 1000, **numbers.document(rows)}


def _choose_span(query: JobSummaryQuery, now_ns: int) -> tuple[int, int]:
    """The whole seconds of a query that are complete on all nodes, as begin and end in milliseconds."""
    span = query.span(now_ns, SUMMARY_LAST)
    newest = now_ns // SECOND_NS - 1
    if span.newest:
        first, end = newest - span.length_ns // SECOND_NS, newest
    else:
        first, end = span.from_ns // SECOND_NS, min(-(-span.to_ns // SECOND_NS), newest)
    parameter = "last" if span.newest else "from"
    if span.newest and span.length_ns % SECOND_NS:
        raise bad_parameter(parameter, "it is not a whole number of seconds; write it like 30s")
    if end <= first:
        raise bad_parameter(parameter, "no second of the span is complete yet; use an earlier from or a later to")
    if end - first > MAX_SUMMARY_SECONDS:
        raise bad_parameter(
            parameter,
            f"the span of {end - first}s exceeds {MAX_SUMMARY_SECONDS}s, the most that the gateway reads of all nodes "
            "sample by sample; /node/NAME/api/v1/summary has longer spans of a node",
        )
    return first * 1000, end * 1000


async def list_job_events(parts: GatewayParts, job: FleetJob, query: requests.EventsQuery) -> dict[str, Any]:
    """The events of the nodes of a job, by time."""
    # of many nodes, each gives the newest of its share
    limit = min(query.limit, max(1, MAX_EVENTS // max(1, len(job.nodes))))
    given = query.model_dump(by_alias=True, exclude_none=True, exclude={"kind", "limit"})
    asked = [*((name, str(text)) for name, text in given.items()), ("limit", str(limit))]
    asked += [("kind", kind) for kind in query.kind]

    nodes, gone = parts.nodes.choose(job.nodes)
    found = await parts.nodes.ask_all(nodes, lambda node: ask_node(node, EventsAnswer, "/api/v1/events", asked))
    every = [{"node": node, **event.model_dump()} for node, answer in found.answers.items() for event in answer.events]
    every.sort(key=lambda event: event["time_ms"])
    kept = every[-query.limit :]
    kinds: dict[str, int] = {}
    for answer in found.answers.values():
        for kind, count in answer.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + count
    begins = [answer.from_ms for answer in found.answers.values()]
    return {
        "from_ms": None if None in begins else min((each for each in begins if each is not None), default=None),
        "to_ms": max((answer.to_ms for answer in found.answers.values()), default=None),
        "kinds": kinds,
        "left_out": sum(answer.left_out for answer in found.answers.values()) + len(every) - len(kept),
        "missing": [{"node": name, "reason": reason} for name, reason in (gone | found.missing).items()],
        "events": kept,
    }


class JobWindowQuery(requests.SpanQuery, RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/window`, unparsed."""

    last: requests.OptionalDuration = Field(
        None, description=f"Length of the newest span, like 5s or 1m (default: {WINDOW_LAST})."
    )
    direction: Literal["transmit", "receive", "both"] = Field("both", description="Direction of traffic.")
    unit: Literal["bytes_per_second", "ratio"] = Field(
        "bytes_per_second", description="Bytes per second, or the ratio to the line rate that the row had then."
    )
    resolution: requests.OptionalDuration = requests.RESOLUTION
    max_points: requests.MaxPoints = requests.MAX_POINTS
    statistic: Statistic = requests.STATISTIC
    format: Literal["json", "npy"] = Field("json", description="Format of the response.")


@dataclass(slots=True)
class JobWindow:
    """Rates of rows in bins: (rows, 2, bins), NaN for missing data, and what the nodes said about them.

    With `line_rates`, by node and rail, they are ratios to the line rates of the time.
    """

    job: FleetJob
    rows: Sequence[Row]
    bins: Bins
    interval_ns: int
    statistic: Statistic
    values: np.ndarray[Any, np.dtype[np.float32]] = field(init=False)
    marks: np.ndarray[Any, np.dtype[np.bool_]] = field(init=False)
    missing: dict[str, str] = field(default_factory=dict)
    history_ms: list[tuple[int, int]] = field(default_factory=list)
    line_rates: dict[str, Mapping[str, RailLineRates]] | None = None
    merged: int = 0
    unexplained: int = 0

    def __post_init__(self) -> None:
        shape = len(self.rows), 2, self.bins.points
        self.values, self.marks = np.full(shape, np.nan, dtype=np.float32), np.zeros(shape, dtype=np.bool_)

    @property
    def bin_ms(self) -> int:
        """Width of a bin."""
        return self.bins.width * self.interval_ns // MILLISECOND_NS

    @property
    def start_ms(self) -> int:
        """When the first bin begins."""
        return self.bins.first * self.interval_ns // MILLISECOND_NS

    @property
    def end_ms(self) -> int:
        """When the last bin ends."""
        return self.start_ms + self.bins.points * self.bin_ms

    def add(self, node: str, window: NodeArray, from_ms: int, to_ms: int) -> None:
        """Add the samples of a node from one edge of a bin to another one.

        Raises:
            DaemonError: the window is not one of samples.
        """
        head = window.head
        kept_ms = max(head.interval_ms, head.end_ms - head.start_ms, to_ms - from_ms)
        samples = NodeSamples(head.interval_ms, kept_ms).add(window)
        # a bin is complete when all its samples were read
        end_ms = min(to_ms, samples.end_ms // self.bin_ms * self.bin_ms)
        part = slice((from_ms - self.start_ms) // self.bin_ms, max(0, end_ms - self.start_ms) // self.bin_ms)
        self.merged += head.implausible.merged
        self.unexplained += head.implausible.unexplained
        for place, row in enumerate(self.rows):
            if row.node == node and part.start < part.stop:
                lines = None if self.line_rates is None else [self.line_rates[node][rail] for rail in row.rails]
                self.values[place, :, part], self.marks[place, :, part] = bin_samples(
                    samples, row.rails, from_ms, end_ms, self.bin_ms, self.statistic, lines=lines
                )


class JobWindows:
    """Reads windows of jobs, a few at a time."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._places = ParallelRequests(MAX_WINDOWS, "windows of jobs are already being read")
        self._threads = DaemonThreads(MAX_WINDOWS, "job-window")

    async def answer(self, request: Request, text: str, query: JobWindowQuery, now_ns: int) -> Response:
        """The response to a query."""
        states = {state.name: state for state in self._parts.table.rows()}
        job, rows = choose_rows(states, text, query.node, rails=query.rows == "rails")
        window = _plan(job, rows, states, query, now_ns)
        async with self._places.place(request):
            asked, window.missing = self._parts.nodes.choose(row.node for row in window.rows)
            if query.unit == "ratio":
                asked = await self._read_line_rates(window, asked, states)
            await self._read(window, asked)
        return _encode(window, query)

    async def _read_line_rates(
        self, window: JobWindow, asked: Sequence[Node], states: Mapping[str, NodeState]
    ) -> list[Node]:
        """Read the line rates of the span; returns the nodes that tell them."""

        async def ask(node: Node) -> Mapping[str, RailLineRates]:
            rails = rails_of(window.job.nodes[node.name], states.get(node.name))
            return await ask_line_rates(node, rails, window.start_ms)

        found = await self._parts.nodes.ask_all(asked, ask)
        window.line_rates = found.answers
        window.missing.update(found.missing)
        return [node for node in asked if node.name in found.answers]

    async def _read(self, window: JobWindow, asked: Sequence[Node]) -> None:
        # slices begin and end at bins
        step_ms = max(window.bin_ms, SLICE_MS // window.bin_ms * window.bin_ms)
        for from_ms in range(window.start_ms, window.end_ms, step_ms):
            to_ms = min(from_ms + step_ms, window.end_ms)
            # of whole seconds, because a rail counts in a second or not
            span = [("from", str(from_ms // 1000 * 1000)), ("to", str(-(-to_ms // 1000) * 1000))]
            ask = partial(ask_samples, job=window.job.text, span=span, statistic=window.statistic)
            async for node, answer in self._parts.nodes.ask_each(asked, ask):
                try:
                    if isinstance(answer, DaemonError):
                        raise answer
                    history = answer.head.history
                    window.history_ms.append((history.oldest_ms, history.newest_ms))
                    await asyncio.wrap_future(self._threads.submit(window.add, node.name, answer, from_ms, to_ms))
                except DaemonError as error:
                    window.missing[node.name] = str(error)
            asked = [node for node in asked if node.name not in window.missing]


def _plan(
    job: FleetJob, rows: Sequence[Row], states: Mapping[str, NodeState], query: JobWindowQuery, now_ns: int
) -> JobWindow:
    known = {name: state.ports.interval_ns for name, state in states.items() if state.ports}
    interval_ns = common_interval(
        (known[name] for name in {row.node for row in rows} if name in known), UNKNOWN_INTERVAL_NS
    )
    span, whose = query.span(now_ns, WINDOW_LAST), "the interval of most nodes"
    bins = requests.choose_bins(span, query.resolution, query.max_points, now_ns, interval_ns, whose=whose)
    values = 2 * len(rows) * bins.points
    length_ns = bins.points * bins.width * interval_ns
    samples = 2 * sum(len(row.rails) * length_ns // known.get(row.node, interval_ns) for row in rows)
    for name, asked, limit in (("max_values", values, MAX_VALUES), ("max_samples", samples, MAX_SAMPLES)):
        if asked > limit:
            raise ProblemError(
                "too-many-values",
                422,
                f"The window has {values} values of {samples} samples; the maximum is {MAX_VALUES} of {MAX_SAMPLES}. "
                "Use max_points, a shorter span or fewer nodes.",
                bound={"name": name, "limit": limit, "asked": min(asked, 2**63)},
            )
    return JobWindow(job, rows, bins, interval_ns, query.statistic)


def _encode(window: JobWindow, query: JobWindowQuery) -> Response:
    ways = [place for place, way in enumerate(DIRECTIONS) if query.direction in (way, "both")]
    values = window.values[:, ways].reshape(len(window.rows) * len(ways), window.bins.points)
    series = [(row.name, DIRECTIONS[way]) for row in window.rows for way in ways]
    holes = int(np.count_nonzero(np.isnan(values)))
    places = find_places(window.marks[:, ways].reshape(values.shape))
    about = {
        "job": window.job.about(),
        "interval_ms": window.interval_ns // MILLISECOND_NS,
        "resolution_ms": window.bin_ms,
        "statistic": query.statistic,
        "unit": query.unit,
        "start_ms": window.start_ms,
        "end_ms": window.end_ms,
        "points": window.bins.points,
        "holes": holes,
        "implausible": {"merged": window.merged, "unexplained": window.unexplained, "places": places[:MAX_PLACES]},
        "history": {
            "oldest_ms": min((oldest for oldest, _ in window.history_ms), default=None),
            "newest_ms": max((newest for _, newest in window.history_ms), default=None),
        },
        "coverage": f"{holes} of {values.size} values are missing." if holes else "No values are missing.",
        "missing": [row.name for row in window.rows if row.node in window.missing],
    }
    if query.format == "npy":
        about["series"] = [" ".join(name) for name in series]
        # not orjson, because headers are ASCII only
        return Response(
            encode_npy(values), headers={NPY_HEADER: json.dumps(about, separators=(",", ":"))}, media_type=NPY_TYPE
        )
    about["reasons"] = window.missing
    about["series"] = [
        {"row": row, "direction": way, "values": line} for (row, way), line in zip(series, values, strict=True)
    ]
    return Response(orjson.dumps(about, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


class JobStreamQuery(RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/stream`, unparsed."""

    from_: requests.OptionalInstant = requests.RESUME_FROM


def job_router(parts: GatewayParts) -> APIRouter:
    """The routes of jobs."""
    router = APIRouter()
    hub = JobHub(parts)

    @router.get("/api/v1/jobs", **operation("list_jobs", _members("The jobs of all nodes.")))
    async def jobs() -> Response:
        """The jobs of all nodes: those that run, and those that ended within the history, with begin and end."""
        return json_response(200, describe_jobs(parts.table.rows()))

    @router.get("/api/v1/verdicts", **operation("list_verdicts", model(VerdictsAnswer, "The watched jobs.")))
    async def verdicts() -> Response:
        """The jobs that are watched for silence, with the verdicts on their last stalls."""
        return json_response(200, VerdictsAnswer.model_construct(jobs=[job.describe() for job in parts.verdicts]))

    events = text("Events like those of a node's stream.", MEDIA_TYPE)

    @router.get(PATH + "/stream", **operation("get_job_stream", events, 404, 422, 503, repeatable=("node",)))
    async def stream(
        job: str, query: Annotated[JobStreamQuery, Query()], last_event_id: LastEventId = None
    ) -> Response:
        """The highest sample of every row in 100 ms, live, and the numbers of the job once a second."""
        view = query.rows == "rails", tuple(sorted(set(query.node)))
        key = hub.check(job, view)
        last, begin_ns = requests.read_resume(last_event_id, query.from_, parts.clock.time_ns())
        begin = last if begin_ns is None else begin_ns // MILLISECOND_NS
        return EventStream(lambda client: hub.join(client, key, view, begin), hub.leave)

    router.include_router(_span_router(parts))
    router.include_router(captures_router(parts))
    return router


def _span_router(parts: GatewayParts) -> APIRouter:
    """The routes of spans of jobs."""
    router, windows = APIRouter(), JobWindows(parts)
    spans = ParallelRequests(MAX_SPANS, "summaries or lists of events of jobs are already being read")

    def described(name: str, answer: str, repeatable: str) -> dict[str, Any]:
        return operation(name, _members(answer), 404, 422, 503, repeatable=(repeatable,))

    @router.get(PATH + "/window", **described("get_job_window", "The window; missing samples are null.", "node"))
    async def window(request: Request, job: str, query: Annotated[JobWindowQuery, Query()]) -> Response:
        """Rates of all rows on a regular grid of wall time."""
        return await windows.answer(request, job, query, parts.clock.time_ns())

    @router.get(PATH + "/summary", **described("get_job_summary", "The numbers of the job and its rows.", "node"))
    async def summary(request: Request, job: str, query: Annotated[JobSummaryQuery, Query()]) -> Response:
        """The numbers of the job and of its rows in a span of whole seconds."""
        async with spans.place(request):
            return json_response(200, await summarize_job(parts, job, query))

    @router.get(PATH + "/events", **described("list_job_events", "The events of the nodes.", "kind"))
    async def events(request: Request, job: str, query: Annotated[requests.EventsQuery, Query()]) -> Response:
        """The events of the nodes of the job, each by the clock of its node."""
        chosen = choose_job(list_jobs(parts.table.rows()), job)
        async with spans.place(request):
            return json_response(200, await list_job_events(parts, chosen, query))

    return router


def _members(description: str) -> dict[str, Any]:
    return text(description, JSON, kind="object")
