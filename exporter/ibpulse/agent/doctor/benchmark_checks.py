"""Check of a benchmark's result by this node's rails, with those whose topology may explain a poor one."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.agent.doctor.facts import Facts
from ibpulse.agent.doctor.finding import Finding, Level, check, passed
from ibpulse.base.text import escape_controls, link_rate_text, names_text, percent, sentence_list, statistic_text
from ibpulse.core.recordings import RecordedPort
from ibpulse.workbench.nccl.grades import GradedResult, KnownHardware, find_suspects, grade
from ibpulse.workbench.nccl.results import BenchmarkRun


@check(
    "nccl",
    detail="Compares the result of the largest size in each file of `--nccl` with the bound that this node's rails "
    "set, as [`ibpulse nccl`](nccl.md) does. If it is poor, rails whose topology, rate or state may explain it are "
    "named; each is a guess. Without `--nccl` nothing is checked.",
)
def check_benchmarks(facts: Facts) -> Iterator[Finding]:
    """Results of nccl-tests, rccl-tests, perftest or NCCL Inspector (`--nccl`) reach what this node's rails allow."""
    for run in facts.benchmarks:
        yield _judge_run(run, facts)


def _judge_run(run: BenchmarkRun, facts: Facts) -> Finding:
    hardware, name = _hardware(facts), escape_controls(run.path.name)
    rows = [grade(run, row, hardware) for row in run.measurements]
    graded = [one for one in rows if one.grade]
    if not graded:
        largest = max(rows, key=lambda one: one.row.size_bytes)
        missing = sorted({flag for one in rows for flag in one.theory.missing})
        needs = f"; `ibpulse nccl` takes {names_text(missing)}" if missing else ""
        return passed(name, f"{_result(largest)} is not graded: {largest.reason}{needs}.")
    chosen = max(graded, key=lambda one: (one.row.size_bytes, one.grade == "poor"))
    sentence = f"{_result(chosen)} is {chosen.grade}{_share(chosen)}."
    if chosen.grade != "poor":
        return passed(name, sentence)
    found = list(_suspects(facts))
    means = f"Suspects, each a guess: {sentence_list(found)}." if found else "No rail stands out by topology or rate."
    return Finding(
        Level.WARN,
        name,
        sentence,
        means,
        "Record the node during a run; ibpulse nccl FILE --against=RECORDING then shows rails that carry nothing.",
    )


def _hardware(facts: Facts) -> KnownHardware:
    """The rails of this node; rates that differ stay unknown."""
    rails = [port for port in facts.fabric.ports if port.rail]
    rates = {port.rate_bytes_per_second for port in rails if port.active}
    return KnownHardware(rails=len(rails) or None, rail_rate=rates.pop() if len(rates) == 1 else None)


def _result(judged: GradedResult) -> str:
    row = judged.row
    rate = row.bus_bytes_per_second
    reached = "has no bandwidth" if rate is None else f"at {statistic_text(rate, 'rate')}"
    return f"{row.collective or 'a collective'} of {statistic_text(row.size_bytes, 'bytes')} {reached}"


def _share(judged: GradedResult) -> str:
    """The share of the bound; of the lower one if the algorithm is unknown."""
    bound, ratio = judged.theory.low, judged.ratios[1]
    if bound is None or ratio is None:
        return ""
    return f": {percent(ratio)} of the {judged.theory.tier}'s {statistic_text(bound, 'rate')}"


def _suspects(facts: Facts) -> Iterator[str]:
    rails = [port for port in facts.fabric.ports if port.rail]
    recorded = [RecordedPort.of(port, port.source.name if port.source else "", 1) for port in rails]
    for one in find_suspects(recorded, [None] * len(recorded)):
        yield f"{one.rail}: {one.kind} ({one.evidence})"
    paths = {place.device: place.pcie_bytes_per_second for place in facts.fabric.topology.devices}
    for port in rails:
        path, rate = paths.get(port.id.device), port.rate_bytes_per_second
        if path is not None and rate is not None and path < rate:
            yield f"{port.id}: PCIe link (it carries {link_rate_text(path)}, the port {link_rate_text(rate)})"
