"""`/api/v1/jobs`: the jobs of all nodes, with the silence of those that are silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ibpulse.base.instants import format_rfc3339
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.gateway.job_stall import find_stall
from ibpulse.gateway.jobs import FleetJob, JobNode, list_jobs
from ibpulse.gateway.nodes.table import NodeState


def describe_jobs(states: Sequence[NodeState]) -> dict[str, Any]:
    """The answer of `/api/v1/jobs`: those that run first, then the last that ended.

    The rows of a node in `refused` are those of an earlier answer.
    """
    jobs = sorted(list_jobs(states).values(), key=lambda job: (job.ended[0] is not None, -(job.ended[0] or 0), job.key))
    by_name = {state.name: state for state in states}
    unknown = [state.name for state in states if state.jobs is None or not state.jobs.known]
    refused = [{"node": state.name, "reason": state.jobs_problem} for state in states if state.jobs_problem]
    return {"jobs": [_describe(job, by_name) for job in jobs], "unknown": unknown, "refused": refused}


def _describe(job: FleetJob, states: Mapping[str, NodeState]) -> dict[str, Any]:
    stall = find_stall({name: JobNode(each, states[name], _problem(states[name])) for name, each in job.nodes.items()})
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
        "stall": stall.describe() if stall else None,
        "nodes": nodes,
    }


def _problem(state: NodeState) -> tuple[str, str]:
    return state.kind or "", state.problem if state.kind else ""


def _moment(name: str, time_ms: int | None, uncertainty_ms: int) -> dict[str, Any]:
    text = None if time_ms is None else format_rfc3339(time_ms * MILLISECOND_NS)
    return {name: text, f"{name}_ms": time_ms, f"{name}_uncertainty_ms": uncertainty_ms}
