"""Jobs across nodes: the nodes of a job, its ports on each, the rows of its page, and their numbers over a span."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ibpulse.base.text import first_names, natural_key
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.jobs import JobAnswer
from ibpulse.core.answers.node import PortAnswer
from ibpulse.core.answers.summary import PortSummary, SummaryAnswer
from ibpulse.core.arrays import Singles
from ibpulse.core.http.problems import ProblemError
from ibpulse.core.http.requests import choose_key
from ibpulse.core.jobs import Key
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.statistics.lateness import Lateness, compare_nodes
from ibpulse.core.statistics.nodes import find_hot_rail
from ibpulse.core.statistics.rates import stands_still
from ibpulse.core.statistics.steps.edges import find_step_edges
from ibpulse.gateway.nodes.table import NodeState, describe_clock
from ibpulse.gateway.samples import NodeSamples

NAMED_NODES, MAX_ROWS = 20, 128
ACTIVE = "ACTIVE"


@dataclass(slots=True)
class FleetJob:
    """A job of a scheduler, with what each of its nodes says of it last."""

    key: Key
    nodes: dict[str, JobAnswer] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The job as a parameter of the API of a node."""
        return ":".join(self.key)

    @property
    def name(self) -> str:
        """Its name, empty if no node gives it."""
        return next((each.name for each in self.nodes.values() if each.name), "")

    @property
    def began(self) -> tuple[int | None, int]:
        """Its begin as its first node saw it, in ms, and how much earlier that may have been; None if it is unknown."""
        found = [
            (each.began_ms, each.began_uncertainty_ms) for each in self.nodes.values() if each.began_ms is not None
        ]
        return min(found) if len(found) == len(self.nodes) and found else (None, 0)

    @property
    def ended(self) -> tuple[int | None, int]:
        """Its end as its last node saw it, in ms, and how much earlier that may have been; None while it runs."""
        found = [
            (each.ended_ms, each.ended_uncertainty_ms) for each in self.nodes.values() if each.ended_ms is not None
        ]
        return max(found) if len(found) == len(self.nodes) and found else (None, 0)

    def about(self) -> dict[str, Any]:
        """The members of `job` in the event `rows`."""
        return {
            "job_id": self.key[1],
            "scheduler": self.key[0],
            "name": self.name,
            "began_ms": self.began[0],
            "ended_ms": self.ended[0],
        }


def list_jobs(states: Iterable[NodeState]) -> dict[Key, FleetJob]:
    """The jobs of all nodes, by scheduler and id. A node that had one several times gives its last time."""
    found: dict[Key, FleetJob] = {}
    for state in sorted(states, key=lambda one: natural_key(one.name)):
        for job in state.jobs.jobs if state.jobs else ():
            nodes = found.setdefault((job.scheduler, job.job_id), FleetJob((job.scheduler, job.job_id))).nodes
            known = nodes.get(state.name)
            if known is None or _newness(job) > _newness(known):
                nodes[state.name] = job
    return found


def _newness(job: JobAnswer) -> tuple[bool, int]:
    return job.running, job.ended_ms or 0


def choose_job(jobs: Mapping[Key, FleetJob], text: str) -> FleetJob:
    """The job with an id, or with a scheduler and an id (`slurm:42`).

    Raises:
        ProblemError: there is no such job, or several schedulers have one.
    """
    return jobs[choose_key(jobs, text)]


class RowsQuery(BaseModel):
    """The query parameters that choose rows of a job."""

    model_config = ConfigDict(extra="forbid")

    rows: Literal["nodes", "rails"] = Field("nodes", description="One row per node, or per rail.")
    node: Annotated[list[Annotated[str, Field(max_length=253)]], Field(max_length=5000)] = Field(
        default_factory=list, description="Only this node; repeatable (default: all of the job)."
    )


def rails_of(job: JobAnswer, state: NodeState | None) -> dict[str, PortAnswer | None]:
    """The rails that a job has on a node, by name; None if the node no longer lists the port."""
    known = {port.name: port for port in state.ports.ports} if state and state.ports else {}
    found = {name: known.get(name) for name in job.ports}
    rails = {name: port for name, port in found.items() if port is None or port.rail}
    return dict(sorted((rails or found).items(), key=lambda one: natural_key(one[0])))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a job: a node with its rails, or one of them as `port`."""

    node: str
    port: str | None
    rails: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name, unique in the job."""
        return self.node if self.port is None else f"{self.node} {self.port}"


def rows_of(job: FleetJob, table: Mapping[str, NodeState], nodes: Sequence[str], *, rails: bool) -> list[Row]:
    """The rows for some nodes of a job, or for all."""
    found = []
    for node, each in job.nodes.items():
        if nodes and node not in nodes:
            continue
        names = tuple(rails_of(each, table.get(node)))
        found += [Row(node, name, (name,)) for name in names] if rails else [Row(node, None, names)]
    return found


def choose_rows(
    table: Mapping[str, NodeState], text: str, nodes: Sequence[str], *, rails: bool
) -> tuple[FleetJob, list[Row]]:
    """The job that a request names, as for `choose_job`, and the rows of it that the request chooses."""
    job = choose_job(list_jobs(table.values()), text)
    if nodes and not job.nodes.keys() & set(nodes):
        known = first_names(sorted(job.nodes, key=natural_key), NAMED_NODES)
        raise ProblemError(
            "unknown-node", 404, f"Job {job.text} has no node {nodes[0][:64]!r}. It has {known or 'none'}."
        )
    rows = rows_of(job, table, nodes, rails=rails)
    if len(rows) > MAX_ROWS:
        raise ProblemError(
            "too-many-values",
            422,
            f"The job has {len(rows)} such rows; the maximum is {MAX_ROWS}. Choose some nodes with node=.",
            bound={"name": "max_rows", "limit": MAX_ROWS, "asked": len(rows)},
        )
    return job, rows


def describe_row(row: Row, job: FleetJob, state: NodeState | None, problem: tuple[str, str]) -> dict[str, Any]:
    """A row of the event `rows`, without its past; `problem` is the one of its node, as a word and as a sentence."""
    ports = rails_of(job.nodes[row.node], state) if row.node in job.nodes else {}
    mine = [ports.get(name) for name in row.rails]
    active = any(port is not None and port.active for port in mine)
    only = mine[0] if row.port is not None else None
    word, text = problem
    if not word and only is not None and only.problem:
        word, text = "unreadable", only.problem
    return {
        "row": row.name,
        "node": row.node,
        "port": row.port,
        "labels": dict(state.target.labels) if state else {},
        "active": active,
        "state": only.state if only else "ACTIVE" if active else "DOWN",
        "rate_bytes_per_second": _sum_rates(mine),
        "problem": word,
        "problem_text": text,
        "since_ms": only.since_ms if only else None,
    }


def _sum_rates(ports: Collection[PortAnswer | None]) -> float | None:
    rates = [port.rate_bytes_per_second for port in ports if port and port.rate_bytes_per_second is not None]
    return sum(rates) if rates and len(rates) == len(ports) else None


@dataclass(slots=True)
class JobNode:
    """A node of a job: its rails, its samples, and the statistics of its own daemon.

    `problem` is the word and the sentence of why it does not answer, both empty if it does. `history_ms` is how far
    back its daemon remembers.
    """

    job: JobAnswer
    state: NodeState | None
    problem: tuple[str, str] = ("", "")
    samples: NodeSamples | None = None
    summary: SummaryAnswer | None = None
    history_ms: int = 0
    rails: Mapping[str, PortAnswer | None] = field(init=False)

    def __post_init__(self) -> None:
        self.rails = rails_of(self.job, self.state)

    @property
    def answering(self) -> bool:
        """Whether it answers."""
        return not self.problem[0]

    @property
    def line_rate(self) -> float | None:
        """The sum of the rates of its rails; None if one is unknown."""
        return _sum_rates(self.rails.values())

    @property
    def resolution_seconds(self) -> float:
        """The longest time between two changes of the counters of a rail, as far as it is known."""
        return max(
            (port.source.resolution_seconds for port in self.rails.values() if port and port.source), default=0.0
        )

    def traffic(self) -> Mapping[str, PortSummary]:
        """The statistics of its ports by name."""
        return {port.port: port for port in self.summary.ports} if self.summary else {}

    def rates(self, rails: Sequence[str], length_ms: int) -> Singles | None:
        """The sum of the newest samples of rails: (2, samples); None if there are none, or the node does not answer."""
        if self.samples is None or not self.answering or not self.samples.end_ms:
            return None
        begin = (self.samples.end_ms - length_ms) // self.samples.interval_ms * self.samples.interval_ms
        return self.samples.sum(rails, begin, self.samples.end_ms, live=True)[0]


def find_lateness(nodes: Mapping[str, JobNode], length_ms: int) -> dict[str, Lateness]:
    """The lateness of the nodes whose newest samples say something about it."""
    steps, clocks = {}, {}
    for name, node in nodes.items():
        rates = node.rates(tuple(node.rails), length_ms)
        samples = node.samples
        # an edge lies anywhere in the time between two changes of a counter
        if rates is not None and samples and not stands_still(node.resolution_seconds, samples.interval_ms / 1000):
            begin_ms = samples.end_ms - rates.shape[1] * samples.interval_ms
            edges = find_step_edges(rates, samples.interval_ms * MILLISECOND_NS, node.line_rate)
            steps[name] = edges.times.shifted(float(begin_ms * MILLISECOND_NS))
        if node.state and node.state.offset:
            clocks[name] = node.state.offset
    return compare_nodes(steps, clocks)


@dataclass(frozen=True, slots=True)
class SummarySpan:
    """The end of a summary in ms, and how far back its means and its peaks reach."""

    end_ms: int
    mean_ms: int = 1000
    peak_ms: int = 10_000


class JobNumbers:
    """The numbers of a job, which are the same whatever the rows are: `job` is that of the event, `whole` by node.

    `watched` has the verdict on its last stall, as `Verdicts.of` tells it; while a job is silent, it has no step.
    """

    def __init__(
        self,
        nodes: Mapping[str, JobNode],
        lateness: Mapping[str, Lateness],
        span: SummarySpan,
        watched: Mapping[str, Any] | None = None,
    ) -> None:
        self._nodes, self._lateness, self._span = nodes, lateness, span
        last = (watched or {}).get("verdict") or {}
        self._silent = bool(last) and last["ended_ms"] is None and last["since_ms"] < span.end_ms
        self.whole = {name: self._describe(Row(name, None, tuple(node.rails))) for name, node in nodes.items()}
        self.job: Mapping[str, Any] = {
            **_describe_job(nodes, lateness, list(self.whole.values()), span),
            **(watched or {}),
        }

    def document(self, rows: Iterable[Row]) -> dict[str, Any]:
        """The document of an event `summary` with some rows."""
        found = [
            self.whole[row.node] if row.port is None else self._describe(row) for row in rows if row.node in self._nodes
        ]
        return {"end_ms": self._span.end_ms, "job": self.job, "rows": found}

    def _describe(self, row: Row) -> dict[str, Any]:
        found = _describe_row(row, self._nodes[row.node], self._lateness.get(row.node), self._span)
        return found | {"step_period_seconds": None} if self._silent else found


def _describe_row(row: Row, node: JobNode, late: Lateness | None, span: SummarySpan) -> dict[str, Any]:
    whole = node.summary.node if node.summary and node.answering and row.port is None else None
    traffic = node.traffic()
    return {
        "row": row.name,
        "node": row.node,
        "clock": describe_clock(node.state) if node.state else None,
        "mean_bytes_per_second": _each_way(np.mean, node.rates(row.rails, span.mean_ms)),
        "peak_bytes_per_second": _each_way(np.max, node.rates(row.rails, span.peak_ms)),
        "active_bytes_per_second": whole.bandwidth_active_mean_bytes_per_second if whole else None,
        "duty_cycle_ratio": whole.duty_cycle_ratio if whole else None,
        "step_period_seconds": whole.step_period_seconds if whole else None,
        "rail_fairness_ratio": whole.rail_fairness_ratio if whole else None,
        "lateness_ms": late.lateness_ms if late else None,
        "lateness_uncertainty_ms": late.uncertainty_ms if late else None,
        "late": late is not None and late.late,
        "rails_down": [name for name in row.rails if _is_down(name, node, traffic)],
        "rails_idle": [name for name in row.rails if name in traffic and traffic[name].rail_idle],
        "rails_slow": [name for name in row.rails if name in traffic and traffic[name].rail_slow],
    }


def _is_down(rail: str, node: JobNode, traffic: Mapping[str, PortSummary]) -> bool:
    """Whether a rail was down at the end of the span, or now if the node does not say so."""
    state = traffic[rail].state if rail in traffic else None
    port = node.rails.get(rail)
    return state != ACTIVE if state else port is not None and not port.active


def _each_way(statistic: Callable[[Singles], Any], rates: Singles | None) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(DIRECTIONS)
    if rates is not None:
        for way, values in zip(DIRECTIONS, rates, strict=True):
            known = values[~np.isnan(values)]
            found[way] = float(statistic(known)) if known.size else None
    return found


def _describe_job(
    nodes: Mapping[str, JobNode], lateness: Mapping[str, Lateness], rows: Sequence[dict[str, Any]], span: SummarySpan
) -> dict[str, Any]:
    answering = {name: node for name, node in nodes.items() if node.answering}
    summaries = [node.summary.node for node in answering.values() if node.summary]
    lines = [node.line_rate for node in nodes.values()]
    latest = max(
        (name for name in lateness if lateness[name].late), key=lambda name: lateness[name].lateness_ms, default=None
    )
    return {
        "nodes": len(nodes),
        "answering": len(answering),
        "missing": [{"node": name, "reason": node.problem[1]} for name, node in nodes.items() if not node.answering],
        "rails": sum(len(node.rails) for node in answering.values()),
        "active_rails": sum(each.active_rails for each in summaries) if len(summaries) == len(answering) else None,
        "line_rate_bytes_per_second": None if not lines or None in lines else sum(line or 0.0 for line in lines),
        "transmit_bytes_per_second": _sum(row["mean_bytes_per_second"]["transmit"] for row in rows),
        "receive_bytes_per_second": _sum(row["mean_bytes_per_second"]["receive"] for row in rows),
        "peak": _peak(answering, span.peak_ms),
        "active_bytes_per_second": _spread(each.bandwidth_active_mean_bytes_per_second for each in summaries),
        "duty_cycle_ratio": _spread(each.duty_cycle_ratio for each in summaries),
        "step_period_seconds": _spread(row["step_period_seconds"] for row in rows),
        "lateness_nodes": len(lateness),
        "late": None
        if latest is None
        else {
            "row": latest,
            "lateness_ms": lateness[latest].lateness_ms,
            "uncertainty_ms": lateness[latest].uncertainty_ms,
        },
        "hot_rail": _hot_rail(answering, span.peak_ms),
        "clock": _clocks(nodes.values()),
        "unsynchronised": [
            name
            for name, node in nodes.items()
            if node.state and node.state.clock and node.state.clock.synchronised is False
        ],
    }


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _spread(values: Iterable[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {"median": median(known), "least": min(known), "most": max(known)} if known else None


def _peak(nodes: Mapping[str, JobNode], length_ms: int) -> dict[str, Any] | None:
    """The highest sample of a node, transmit and receive."""
    found: list[tuple[float, str]] = []
    for name, node in nodes.items():
        rates = node.rates(tuple(node.rails), length_ms)
        both = None if rates is None else rates.sum(axis=0)
        if both is not None and not np.isnan(both).all():
            found.append((float(np.nanmax(both)), name))
    highest = max(found, default=None)
    return None if highest is None else {"row": highest[1], "bytes_per_second": highest[0]}


def _hot_rail(nodes: Mapping[str, JobNode], length_ms: int) -> dict[str, Any] | None:
    carried: dict[str, dict[str, float]] = {}
    for name, node in nodes.items():
        samples = node.samples
        # with an unknown rail, no sample is common
        if samples is None or not set(node.rails) <= set(samples.rails):
            continue
        begin = (samples.end_ms - length_ms) // samples.interval_ms * samples.interval_ms
        rates, _ = samples.read(tuple(node.rails), begin, samples.end_ms)
        # only samples that all rails have, or one with missing data would carry less
        common = ~np.isnan(rates).any(axis=(0, 1))
        totals = rates[..., common].sum(axis=(0, 2), dtype=np.float64).tolist()
        carried[name] = dict(zip(node.rails, totals, strict=True))
    found = find_hot_rail(carried)
    return None if found is None else asdict(found)


def _clocks(nodes: Iterable[JobNode]) -> dict[str, Any] | None:
    offsets = [node.state.offset for node in nodes if node.state and node.state.offset]
    if not offsets:
        return None
    first, last = min(offsets, key=lambda one: one.offset_ns), max(offsets, key=lambda one: one.offset_ns)
    unsure = first.uncertainty_ns + last.uncertainty_ns if len(offsets) > 1 else 0
    return {
        "nodes": len(offsets),
        "spread_ms": (last.offset_ns - first.offset_ns) / MILLISECOND_NS,
        "uncertainty_ms": unsure / MILLISECOND_NS,
    }
