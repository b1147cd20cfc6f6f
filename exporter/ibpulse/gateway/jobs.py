"""Jobs across nodes: the nodes of a job, its ports on each of them, the rows of its page, and how late nodes are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

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
from ibpulse.core.statistics.lateness import Lateness, compare_nodes
from ibpulse.core.statistics.rates import stands_still
from ibpulse.core.statistics.steps.edges import find_step_edges
from ibpulse.gateway.nodes.table import NodeState
from ibpulse.gateway.samples import NodeSamples

NAMED_NODES, MAX_ROWS = 20, 128


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
