"""The rows of a job's page: its nodes, or their rails, with the state and the line rate that they have now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ibpulse.base.text import first_names, natural_key
from ibpulse.core.answers.jobs import JobAnswer
from ibpulse.core.answers.node import PortAnswer
from ibpulse.core.http.problems import ProblemError
from ibpulse.gateway.job_nodes import FleetJob
from ibpulse.gateway.nodes.node_table import NodeState

MAX_ROWS = 128
NAMED_NODES = 20


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


def choose_rows(job: FleetJob, table: Mapping[str, NodeState], nodes: Sequence[str], *, rails: bool) -> list[Row]:
    """The same for a request.

    Raises:
        ProblemError: the job has none of these nodes, or there are more rows than can be sent.
    """
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
    return rows


def describe_row(row: Row, job: FleetJob, state: NodeState | None, problem: tuple[str, str]) -> dict[str, Any]:
    """A row of the event `rows`, without its past; `problem` is the one of its node, as a word and as a sentence."""
    ports = rails_of(job.nodes[row.node], state) if row.node in job.nodes else {}
    mine = [ports.get(name) for name in row.rails]
    rates = [port.rate_bytes_per_second if port else None for port in mine]
    known = [rate for rate in rates if rate is not None]
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
        "rate_bytes_per_second": sum(known) if known and len(known) == len(rates) else None,
        "problem": word,
        "problem_text": text,
        "since_ms": only.since_ms if only else None,
    }
