"""A window of a job: the samples of all its nodes on one grid of wall time, each by the clock of its node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from fastapi import Request
from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonError
from ibpulse.base.units import MILLISECOND_NS, format_duration
from ibpulse.base.values import SOME_TIME
from ibpulse.core.answers.samples import NPY_HEADER, NPY_TYPE
from ibpulse.core.client.transport import NodeArray, encode_npy
from ibpulse.core.http.admission import ParallelRequests
from ibpulse.core.http.problems import ProblemError, bad_parameter
from ibpulse.core.http.requests import OptionalDuration, SpanQuery, read_parameter
from ibpulse.core.window_values import MAX_PLACES, Bins, Statistic, bins_between, newest_bins
from ibpulse.gateway.job_nodes import FleetJob, choose_job
from ibpulse.gateway.job_polls import GONE, ask_samples
from ibpulse.gateway.job_rails import Row, RowsQuery, choose_rows, rails_of
from ibpulse.gateway.line_rates import RailLineRates, ask_line_rates
from ibpulse.gateway.node_samples import WAYS, NodeSamples, bin_samples, common_interval, find_places
from ibpulse.gateway.nodes.node_table import NodeState
from ibpulse.gateway.nodes.nodes import Node
from ibpulse.gateway.parts import GatewayParts

DEFAULT_LAST = "5s"
MAX_VALUES = 1_000_000
MAX_SAMPLES = 40_000_000
# so much is read at a time, which bounds the memory
SLICE_MS = 30_000
MAX_PARALLEL = 2
UNKNOWN_NS = 10 * MILLISECOND_NS


class JobWindowQuery(SpanQuery, RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/window`, unparsed."""

    last: OptionalDuration = Field(
        None, description=f"Length of the newest span, like 5s or 1m (default: {DEFAULT_LAST})."
    )
    direction: Literal["transmit", "receive", "both"] = Field("both", description="Direction of traffic.")
    unit: Literal["bytes_per_second", "ratio"] = Field(
        "bytes_per_second", description="Bytes per second, or the ratio to the line rate that the row had then."
    )
    resolution: OptionalDuration = Field(None, description="Width of a bin: a multiple of the interval.")
    max_points: Annotated[
        int | None, Field(ge=2, le=10_000_000), WithJsonSchema({"type": "integer", "minimum": 2, "maximum": 10_000_000})
    ] = Field(None, description="Maximum number of bins; they are widened to fit.")
    statistic: Statistic = Field("max", description="Statistic of the valid samples in a bin.")
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
        self._places = ParallelRequests(MAX_PARALLEL, "windows of jobs are already being read")
        self._threads = DaemonThreads(MAX_PARALLEL, "job-window")

    async def answer(self, request: Request, text: str, query: JobWindowQuery, now_ns: int) -> Response:
        """The response to a query.

        Raises:
            ProblemError: a parameter is invalid, the job is unknown, too much is asked for, or others wait already.
        """
        states = {state.name: state for state in self._parts.table.rows()}
        job = choose_job(states.values(), text)
        rows = choose_rows(job, states, query.node, rails=query.rows == "rails")
        window = _plan(job, rows, states, query, now_ns)
        async with self._places.place(request):
            asked = self._find_nodes(window)
            if query.unit == "ratio":
                asked = await self._read_line_rates(window, asked, states)
            await self._read(window, asked)
        return _encode(window, query)

    def _find_nodes(self, window: JobWindow) -> list[Node]:
        nodes = {row.node: self._parts.nodes.get(row.node) for row in window.rows}
        window.missing.update(dict.fromkeys((name for name, node in nodes.items() if node is None), GONE[1]))
        return [node for node in nodes.values() if node is not None]

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
            async for node, answer in self._parts.nodes.ask_each(asked, _asker(window, from_ms, to_ms)):
                try:
                    if isinstance(answer, DaemonError):
                        raise answer
                    history = answer.head.history
                    window.history_ms.append((history.oldest_ms, history.newest_ms))
                    await asyncio.wrap_future(self._threads.submit(window.add, node.name, answer, from_ms, to_ms))
                except DaemonError as error:
                    window.missing[node.name] = str(error)
            asked = [node for node in asked if node.name not in window.missing]


def _asker(window: JobWindow, from_ms: int, to_ms: int) -> Any:
    """Asks for whole seconds, because a rail counts in a second or not."""
    span = [("from", str(from_ms // 1000 * 1000)), ("to", str(-(-to_ms // 1000) * 1000))]

    async def ask(node: Node) -> NodeArray:
        return await ask_samples(node, window.job.text, span, window.statistic)

    return ask


def _plan(
    job: FleetJob, rows: Sequence[Row], states: Mapping[str, NodeState], query: JobWindowQuery, now_ns: int
) -> JobWindow:
    known = {name: state.ports.interval_ns for name, state in states.items() if state.ports}
    interval_ns = common_interval((known[name] for name in {row.node for row in rows} if name in known), UNKNOWN_NS)
    base = 1
    if query.resolution is not None:
        base, rest = divmod(read_parameter("resolution", query.resolution, SOME_TIME), interval_ns)
        if rest or not base:
            interval = format_duration(interval_ns)
            raise bad_parameter(
                "resolution", f"{query.resolution} is not a multiple of the interval of most nodes, {interval}"
            )
    span = query.span(now_ns, DEFAULT_LAST)
    if span.newest:
        bins = newest_bins(span.length_ns, now_ns, interval_ns, base, query.max_points)
    else:
        bins = bins_between(span.from_ns, span.to_ns, now_ns, interval_ns, base, query.max_points)
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
    ways = [place for place, way in enumerate(WAYS) if query.direction in (way, "both")]
    values = window.values[:, ways].reshape(len(window.rows) * len(ways), window.bins.points)
    series = [(row.name, WAYS[way]) for row in window.rows for way in ways]
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
