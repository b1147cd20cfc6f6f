"""Check of a benchmark's result by this node's rails, with those whose topology may explain a poor one."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.agent.doctor.facts import Facts
from ibpulse.agent.doctor.finding import Finding, Level, check, passed
from ibpulse.base.text import sentence_list


@check(
    "nccl",
    detail="Compares the result of the largest size in each file of `--nccl` with the bound that this node's rails "
    "set, as [`ibpulse nccl`](nccl.md) does. If it is poor, rails whose topology, rate or state may explain it are "
    "named; each is a guess. Without `--nccl` nothing is checked.",
)
def check_benchmarks(facts: Facts) -> Iterator[Finding]:
    """Results of nccl-tests, rccl-tests, perftest or NCCL Inspector (`--nccl`) reach what this node's rails allow."""
    for found in facts.benchmarks:
        if not found.poor:
            yield passed(found.name, found.sentence)
            continue
        told = sentence_list(found.suspects)
        yield Finding(
            Level.WARN,
            found.name,
            found.sentence,
            f"Suspects, each a guess: {told}." if told else "No rail stands out by topology or rate.",
            "Record the node during a run; ibpulse nccl FILE --against=RECORDING then shows rails that carry nothing.",
        )
