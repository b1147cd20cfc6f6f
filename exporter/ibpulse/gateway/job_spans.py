"""The numbers and the events of a job in a span, asked of its nodes."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ibpulse.base.errors import DaemonError
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.events import EventsAnswer
from ibpulse.core.answers.jobs import JobsAnswer
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.http.problems import bad_parameter
from ibpulse.core.http.requests import EventsQuery, OptionalDuration, SpanQuery
from ibpulse.gateway.job_node import JobNode, find_lateness
from ibpulse.gateway.job_nodes import FleetJob, choose_job, list_jobs
from ibpulse.gateway.job_polls import GONE, ask_samples
from ibpulse.gateway.job_rails import RowsQuery, choose_rows
from ibpulse.gateway.job_stall import find_stall
from ibpulse.gateway.job_summary import SummarySpan, describe_job, describe_rows
from ibpulse.gateway.node_samples import NodeSamples
from ibpulse.gateway.nodes.nodes import Node, ask_node
from ibpulse.gateway.parts import GatewayParts

DEFAULT_LAST = "10s"
MAX_SECONDS = 60
# of all nodes together
MAX_EVENTS = 20_000


class JobSummaryQuery(SpanQuery, RowsQuery):
    """The query parameters of `/api/v1/jobs/ID/summary`, unparsed."""

    last: OptionalDuration = Field(
        None, description=f"Length of the newest span in whole seconds, up to 1m (default: {DEFAULT_LAST})."
    )


async def summarize_job(parts: GatewayParts, text: str, query: JobSummaryQuery) -> dict[str, Any]:
    """The numbers of a job and its rows in a span of whole seconds.

    Raises:
        ProblemError: a parameter is invalid, or there is no such job.
    """
    states = {state.name: state for state in parts.table.rows()}
    job = choose_job(states.values(), text)
    rows = choose_rows(job, states, query.node, rails=query.rows == "rails")
    from_ms, to_ms = _choose_span(query, parts.clock.time_ns())
    window_ms = to_ms - from_ms
    nodes = {name: JobNode(each, states.get(name), GONE) for name, each in job.nodes.items()}

    async def ask(node: Node) -> tuple[NodeSamples, SummaryAnswer]:
        span = [("from", str(from_ms)), ("to", str(to_ms))]
        window = await ask_samples(node, job.text, span)
        samples = NodeSamples(window.head.interval_ms, window_ms).add(window)
        parts.table.note_jobs(node.name, await ask_node(node, JobsAnswer, "/api/v1/jobs"))
        return samples, await ask_node(node, SummaryAnswer, "/api/v1/summary", [("job", job.text), *span])

    asked = [node for name in nodes if (node := parts.nodes.get(name)) is not None]
    async for node, answer in parts.nodes.ask_each(asked, ask):
        data = nodes[node.name]
        if isinstance(answer, DaemonError):
            data.problem = (answer.kind, str(answer))
        else:
            data.problem, (data.samples, data.summary) = ("", ""), answer
    span = SummarySpan(to_ms, window_ms, window_ms)
    # what the nodes have just answered about the job
    states = {state.name: state for state in parts.table.rows()}
    for name, each in list_jobs(states.values()).get(job.key, job).nodes.items():
        if name in nodes:
            nodes[name].job, nodes[name].state = each, states[name]
    numbers = describe_job(nodes, find_lateness(nodes, window_ms), span, find_stall(nodes))
    return {"window_seconds": window_ms // 1000, **describe_rows(numbers, rows)}


def _choose_span(query: JobSummaryQuery, now_ns: int) -> tuple[int, int]:
    """The whole seconds of a query that are complete on all nodes, as begin and end in milliseconds.

    Raises:
        ProblemError: a parameter is invalid, or the span is too long or too short.
    """
    span = query.span(now_ns, DEFAULT_LAST)
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
    if end - first > MAX_SECONDS:
        raise bad_parameter(
            parameter,
            f"the span of {end - first}s exceeds {MAX_SECONDS}s, the most that the gateway reads of all nodes sample "
            "by sample; /node/NAME/api/v1/summary has longer spans of a node, and stall does not depend on the span",
        )
    return first * 1000, end * 1000


async def list_job_events(parts: GatewayParts, job: FleetJob, query: EventsQuery) -> dict[str, Any]:
    """The events of the nodes of a job, by time."""
    # of many nodes, each gives the newest of its share
    limit = min(query.limit, max(1, MAX_EVENTS // max(1, len(job.nodes))))
    given = query.model_dump(by_alias=True, exclude_none=True, exclude={"kind", "limit"})
    asked = [*((name, str(text)) for name, text in given.items()), ("limit", str(limit))]
    asked += [("kind", kind) for kind in query.kind]

    async def ask(node: Node) -> EventsAnswer:
        return await ask_node(node, EventsAnswer, "/api/v1/events", asked)

    nodes = [node for name in job.nodes if (node := parts.nodes.get(name)) is not None]
    found = await parts.nodes.ask_all(nodes, ask)
    missing = {name: GONE[1] for name in job.nodes if parts.nodes.get(name) is None} | found.missing
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
        "missing": [{"node": name, "reason": reason} for name, reason in missing.items()],
        "events": kept,
    }
