"""Judges results of benchmarks by the rails of a node, for `ibpulse doctor --nccl`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ibpulse.agent.doctor.facts import BenchmarkFacts
from ibpulse.base.text import link_rate_text, names_text, percent, statistic_text
from ibpulse.core.model import Fabric
from ibpulse.core.recordings import RecordedPort
from ibpulse.workbench.nccl.grades import GradedResult, KnownHardware, find_suspects, grade
from ibpulse.workbench.nccl.results import BenchmarkRun


def judge_benchmarks(runs: Iterable[BenchmarkRun], fabric: Fabric) -> tuple[BenchmarkFacts, ...]:
    """The result of the largest size in each run, by the bound that the rails of the node set."""
    return tuple(_judge_run(run, fabric) for run in runs)


def _judge_run(run: BenchmarkRun, fabric: Fabric) -> BenchmarkFacts:
    hardware, name = _hardware(fabric), run.path.name
    rows = [grade(run, row, hardware) for row in run.measurements]
    graded = [one for one in rows if one.grade]
    if not graded:
        largest = max(rows, key=lambda one: one.row.size_bytes)
        missing = sorted({flag for one in rows for flag in one.theory.missing})
        needs = f"; `ibpulse nccl` takes {names_text(missing)}" if missing else ""
        return BenchmarkFacts(name, f"{_result(largest)} is not graded: {largest.reason}{needs}.")
    chosen = max(graded, key=lambda one: (one.row.size_bytes, one.grade == "poor"))
    poor = chosen.grade == "poor"
    sentence = f"{_result(chosen)} is {chosen.grade}{_share(chosen)}."
    return BenchmarkFacts(name, sentence, poor=poor, suspects=tuple(_suspects(fabric)) if poor else ())


def _hardware(fabric: Fabric) -> KnownHardware:
    """The rails of this node; rates that differ stay unknown."""
    rails = [port for port in fabric.ports if port.rail]
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


def _suspects(fabric: Fabric) -> Iterator[str]:
    rails = [port for port in fabric.ports if port.rail]
    recorded = [RecordedPort.of(port, port.source.name if port.source else "", 1) for port in rails]
    for one in find_suspects(recorded, [None] * len(recorded)):
        yield f"{one.rail}: {one.kind} ({one.evidence})"
    paths = {place.device: place.pcie_bytes_per_second for place in fabric.topology.devices}
    for port in rails:
        path, rate = paths.get(port.id.device), port.rate_bytes_per_second
        if path is not None and rate is not None and path < rate:
            yield f"{port.id}: PCIe link (it carries {link_rate_text(path)}, the port {link_rate_text(rate)})"
