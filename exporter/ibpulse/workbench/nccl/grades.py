"""Bounds that the hardware sets to results, grades of results, and rails that may explain a poor one.

Two tiers: the network, with the line rate of all rails of a node, and the links between GPUs of a node. The tier with
the lower bound is the bottleneck. Limits of the grades are ratios of published measurements on nodes with 8 × 400 Gb/s:
NCCL's maintainers name 350 to 375 GB/s of 400 for rings over 4 nodes or more (NVIDIA/nccl-tests issues 283 and 290),
0.9 of the bound for all-to-all (issue 130), and 370 of 450 within a node (issue 212); Azure's node health checks
(Azure/azurehpc-health-checks at 0e0a1ac2) demand 380 of 400 Gb/s from `ib_write_bw`.

A suspect is a guess with its evidence. Topology alone does not prove that a path is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ibpulse.base.text import link_rate_text, percent
from ibpulse.core.recordings import RecordedPort
from ibpulse.workbench.models.collectives import HIERARCHICAL, RING
from ibpulse.workbench.nccl import results

NETWORK, GPU_LINKS, PORT = "network", "GPU links", "port"
MIN_GRADED_BYTES = 10**9
"""Smaller operations are limited by latency."""
# at least this share of the bound is good, less than the other is poor
GRADES = {NETWORK: (350 / 400, 300 / 400), GPU_LINKS: (370 / 450, 330 / 450), PORT: (380 / 400, 360 / 400)}
ALL_TO_ALL_GRADES = (0.9, 0.6)
"""Of an all-to-all over the network."""


@dataclass(frozen=True, slots=True)
class KnownHardware:
    """The hardware of a node; rates in bytes per second and direction, None if unknown.

    `gpu_bytes_per_second` is the rate of a GPU's links to the other GPUs of its node. `algorithm` is the
    one that NCCL used.
    """

    ranks: int | None = None
    nodes: int | None = None
    rails: int | None = None
    rail_bytes_per_second: float | None = None
    gpu_bytes_per_second: float | None = None
    algorithm: str | None = None

    def with_rails(self, ports: Iterable[RecordedPort]) -> KnownHardware:
        """The hardware with rails and rate of ports where they were not given; rates that differ stay unknown."""
        rails = [port for port in ports if port.rail]
        rates = {port.rate_bytes_per_second for port in rails if port.active}
        rate = rates.pop() if len(rates) == 1 else None
        return replace(
            self, rails=self.rails or len(rails) or None, rail_bytes_per_second=self.rail_bytes_per_second or rate
        )


@dataclass(frozen=True, slots=True)
class Theory:
    """The bound of the bus bandwidth in bytes per second, a range if the algorithm is unknown; None if unknown.

    `tier` is the bottleneck. `missing` names the inputs without which the bound is unknown, or not certain.
    """

    low: float | None = None
    high: float | None = None
    tier: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GradedResult:
    """A measurement with its bound and its grade: `good`, `fair`, `poor`, or empty with the `reason`."""

    row: results.Measurement
    theory: Theory
    grade: str = ""
    reason: str = ""

    @property
    def ratios(self) -> tuple[float | None, float | None]:
        """Achieved bandwidth divided by the highest and by the lowest bound."""
        achieved, bounds = self.row.bus_bytes_per_second, (self.theory.high, self.theory.low)
        least, most = (None if achieved is None or not bound else achieved / bound for bound in bounds)
        return least, most


def grade(run: results.BenchmarkRun, row: results.Measurement, hardware: KnownHardware) -> GradedResult:
    """A result of a run against its bound. Values of the hardware take precedence over those of the file."""
    if run.form.startswith("perftest"):
        if hardware.rail_bytes_per_second is None:
            return GradedResult(row, Theory(missing=("--rate",)), reason="bound unknown")
        bound = hardware.rail_bytes_per_second * run.directions
        return _graded(row, Theory(bound, bound, PORT))
    ranks = hardware.ranks or row.ranks or run.ranks
    nodes = hardware.nodes or row.nodes or run.nodes
    theory = bound_of(row, ranks, nodes, hardware)
    if row.bus_bytes_per_second is None:
        return GradedResult(row, theory, reason="no bus bandwidth")
    if theory.low is None:
        return GradedResult(row, theory, reason="bound unknown")
    if row.size_bytes < MIN_GRADED_BYTES:
        return GradedResult(row, theory, reason="below 1 GB")
    return _graded(row, theory)


def _graded(row: results.Measurement, theory: Theory) -> GradedResult:
    """The grade that every algorithm leads to, if there is one."""
    least, most = GradedResult(row, theory).ratios
    all_to_all = theory.tier == NETWORK and row.collective == "alltoall"
    good, poor = ALL_TO_ALL_GRADES if all_to_all else GRADES[theory.tier]
    if most is not None and most < poor:
        return GradedResult(row, theory, "poor")
    if least is not None and good <= least <= 1:
        return GradedResult(row, theory, "good")
    if least is None or least != most:
        return GradedResult(row, theory, reason="algorithm unknown")
    if least > 1:
        return GradedResult(row, theory, reason="above the bound: check the inputs")
    return GradedResult(row, theory, "fair")


def bound_of(row: results.Measurement, ranks: int | None, nodes: int | None, hardware: KnownHardware) -> Theory:
    """The bound of the bus bandwidth of a collective.

    Bus bandwidth is `bus_factor` × S / t, and t is at least bytes / rate on each tier.
    """
    known = results.ALGORITHMS.get(row.collective, ())
    if not known:
        return Theory(missing=() if row.collective else ("--collective",))
    missing = [flag for flag, value in (("--ranks", ranks), ("--nodes", nodes)) if not value]
    if missing or not ranks or not nodes:
        return Theory(missing=tuple(missing))
    if ranks % nodes:
        return Theory(missing=("--nodes",))
    algorithm = results.plain_algorithm(hardware.algorithm or row.algorithm)
    # in-network reduction needs special switches, and is not what NCCL does by default
    choices = [algorithm] if algorithm in known else [name for name in known if name != results.COLLNET]
    if nodes == 1:
        return _inside_a_node(row, algorithm, hardware)
    rate = _network_rate(row, hardware)
    if rate is None:
        absent = (("--rails", hardware.rails), ("--rate", hardware.rail_bytes_per_second))
        return Theory(missing=tuple(flag for flag, value in absent if not value))
    factor = results.bus_factor(row.collective, ranks) or 0.0
    bounds = []
    for name in choices:
        sent = results.node_bytes(row.collective, name, 1.0, ranks, nodes)
        if sent:
            bounds.append((factor * rate / sent, NETWORK))
            inside = _gpu_bound(row.collective, name, ranks, nodes, hardware.gpu_bytes_per_second)
            if inside is not None and inside < bounds[-1][0]:
                bounds[-1] = (inside, GPU_LINKS)
    low, tier = min(bounds)
    return Theory(low, max(bounds)[0], tier, () if hardware.gpu_bytes_per_second else ("--gpu-rate",))


def _gpu_bound(collective: str, algorithm: str, ranks: int, nodes: int, gpu_rate: float | None) -> float | None:
    """The bound by the links of a GPU over several nodes, None if it is unknown, or if they carry nothing.

    A GPU sends as much as a node with a ring; otherwise as in a ring over the ranks of its node alone.
    """
    members = ranks // nodes
    if gpu_rate is None or algorithm not in (RING, results.TREE, HIERARCHICAL) or members == 1:
        return None
    outer, inner = results.bus_factor(collective, ranks), results.bus_factor(collective, members)
    return gpu_rate if algorithm == RING or not outer or not inner else gpu_rate * outer / inner


def _network_rate(row: results.Measurement, hardware: KnownHardware) -> float | None:
    """The line rate of the rails that an operation can use; SendRecv crosses between nodes from one rank only."""
    if hardware.rail_bytes_per_second is None:
        return None
    if row.collective == "sendrecv":
        return hardware.rail_bytes_per_second
    return None if hardware.rails is None else hardware.rails * hardware.rail_bytes_per_second


def _inside_a_node(row: results.Measurement, algorithm: str, hardware: KnownHardware) -> Theory:
    if hardware.gpu_bytes_per_second is None:
        return Theory(tier=GPU_LINKS, missing=("--gpu-rate",))
    if row.collective == "all_reduce" and algorithm != RING:
        # switches that reduce (NVLS) exceed the bound of a ring; their own is not published
        return Theory(hardware.gpu_bytes_per_second, None, GPU_LINKS, ("--algorithm",))
    return Theory(hardware.gpu_bytes_per_second, hardware.gpu_bytes_per_second, GPU_LINKS)


IDLE_SHARE = 0.1
"""Of an equal share of the bytes; a rail below it is idle."""
# of nvidia-smi topo -m; PIX and PXB stay below one PCIe root port
_PATHS = {
    "SYS": ("NUMA crossing", "its nearest GPU is on another NUMA node (SYS)"),
    "NODE": ("PCIe path", "its nearest GPU is behind another PCIe host bridge (NODE)"),
    "PHB": ("PCIe path", "the path to its nearest GPU passes the CPU's host bridge (PHB)"),
}


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rail, the kind of fault, and the evidence.

    Kinds: idle rail, link down, wrong rate, NUMA crossing, PCIe path.
    """

    rail: str
    kind: str
    evidence: str


def find_suspects(rails: Sequence[RecordedPort], shares: Sequence[float | None]) -> list[Suspect]:
    """The suspects among the rails of a node; `shares` has each rail's share of the bytes, None if unknown.

    A rail below the fastest one has a wrong rate. Paths are suspects even if all rails have the same.
    """
    rates = [rail.rate_bytes_per_second for rail in rails if rail.rate_bytes_per_second]
    found = []
    for rail, share in zip(rails, shares, strict=True):
        name, rate = str(rail.id), rail.rate_bytes_per_second
        if not rail.active:
            found.append(Suspect(name, "link down", f"the link is {rail.state or 'not ACTIVE'}"))
        elif share is not None and share < IDLE_SHARE / len(rails):
            found.append(Suspect(name, "idle rail", f"it carried {percent(share)} of the bytes"))
        if rate and rate < max(rates):
            evidence = f"its rate is {link_rate_text(rate)}, that of the fastest rail {link_rate_text(max(rates))}"
            found.append(Suspect(name, "wrong rate", evidence))
        if rail.identity.gpu_distance in _PATHS:
            found.append(Suspect(name, *_PATHS[rail.identity.gpu_distance]))
    return found
