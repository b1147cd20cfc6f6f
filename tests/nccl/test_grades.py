"""Bytes on the wire, bounds and grades follow the closed forms of the algorithms."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.core.model import PortIdentity
from ibpulse.core.recordings import RecordedPort
from ibpulse.workbench.nccl import results
from ibpulse.workbench.nccl.grades import GPU_LINKS, NETWORK, KnownHardware, bound_of, find_suspects, grade


def row(collective: str, rate: float = 300e9, size: int = 1 << 33, **more: str) -> results.Measurement:
    return results.Measurement(collective, size, 0.1, None, rate, **more)


def node_rate_per_busbw(collective: str, algorithm: str, nodes: int) -> float:
    """Node rate divided by bus bandwidth: the time of an operation cancels."""
    ranks = 8 * nodes
    return results.node_bytes(collective, algorithm, 1.0, ranks, nodes) / results.bus_factor(collective, ranks)


@pytest.mark.parametrize("nodes", [2, 4, 8, 32])
def test_a_ring_sends_at_the_bus_bandwidth(nodes: int) -> None:
    for collective in ("all_reduce", "all_gather", "reduce_scatter"):
        assert node_rate_per_busbw(collective, "ring", nodes) == pytest.approx(1)


@pytest.mark.parametrize(("nodes", "factor"), [(2, 0.5333), (4, 0.7742), (8, 0.8889), (32, 0.9725)])
def test_trees_and_hierarchies_send_less(nodes: int, factor: float) -> None:
    assert node_rate_per_busbw("all_reduce", "tree", nodes) == pytest.approx(factor, abs=5e-5)
    assert node_rate_per_busbw("all_gather", "hierarchical", nodes) == pytest.approx(factor, abs=5e-5)
    assert node_rate_per_busbw("alltoall", "direct", nodes) == pytest.approx(8 * factor, abs=4e-4)


@pytest.mark.parametrize(("nodes", "bound"), [(2, 90.0), (3, 69.0), (4, 62.0), (8, 54.0), (16, 50.8), (64, 48.7)])
def test_the_bound_of_all_to_all(nodes: int, bound: float) -> None:
    theory = bound_of(row("alltoall"), 8 * nodes, nodes, KnownHardware(rails=8, rail_bytes_per_second=48e9))
    assert theory.low == theory.high == pytest.approx(bound * 1e9, abs=0.06e9)


def test_the_bytes_of_other_operations() -> None:
    assert results.node_bytes("all_reduce", "collnet", 100, 16, 2) == 100
    assert results.node_bytes("sendrecv", "direct", 100, 16, 2) == 100
    assert results.node_bytes("broadcast", "ring", 100, 16, 2) == 100
    assert results.node_bytes("all_reduce", "ring", 100, 8, 1) == 0
    assert results.node_bytes("all_reduce", "ring", 100, 9, 2) is None
    assert results.node_bytes("gather", "ring", 100, 16, 2) is None


@pytest.mark.parametrize(
    ("mtu", "infiniband", "roce"), [(4096, 1.0059, 1.0200), (2048, 1.0117, 1.0400), (1024, 1.0234, 1.0801)]
)
def test_headers_add_their_share(mtu: int, infiniband: float, roce: float) -> None:
    assert results.header_factors("InfiniBand", mtu) == (pytest.approx(infiniband, abs=5e-5),) * 2
    assert results.header_factors("Ethernet", mtu) == (
        pytest.approx(infiniband, abs=5e-5),
        pytest.approx(roce, abs=5e-5),
    )
    assert results.header_factors() == (1 + 24 / 4096, 1 + 82 / 1024)


@pytest.mark.parametrize(
    ("ratio", "names"),
    [
        (1.0059, ["ring, simple"]),
        (1.073, ["ring, ll128", "tree, ll", "collnet, ll"]),
        (2.012, ["ring, ll"]),
        (0.5365, ["tree, simple", "collnet, simple"]),
        (1.3, []),
    ],
)
def test_a_ratio_names_algorithm_and_protocol(ratio: float, names: list[str]) -> None:
    """With 2 nodes, several send the same bytes."""
    assert (
        results.explain(ratio, results.explanations("all_reduce", 16, 2), results.header_factors("InfiniBand", 4096))
        == names
    )


def test_the_slower_tier_is_the_bottleneck() -> None:
    fast, slow = (
        KnownHardware(rails=8, rail_bytes_per_second=50e9, gpu_bytes_per_second=rate) for rate in (450e9, 200e9)
    )
    assert bound_of(row("all_gather", algorithm="ring"), 64, 8, fast).tier == NETWORK
    assert bound_of(row("all_gather", algorithm="ring"), 64, 8, fast).low == 400e9
    theory = bound_of(row("all_gather", algorithm="ring"), 64, 8, slow)
    assert (theory.tier, theory.low) == (GPU_LINKS, 200e9)
    # a GPU sends 2 S (G-1)/G within its node, the bus bandwidth is 2 S (n-1)/n over the time
    theory = bound_of(
        row("all_reduce", algorithm="tree"),
        16,
        2,
        KnownHardware(rails=8, rail_bytes_per_second=50e9, gpu_bytes_per_second=450e9),
    )
    assert (theory.tier, theory.low) == (GPU_LINKS, pytest.approx(450e9 * (15 / 16) / (7 / 8)))


def test_small_operations_and_unknown_algorithms_have_no_grade() -> None:
    run = results.BenchmarkRun(Path("x"), "nccl-tests JSON", (row("all_reduce", size=999_999_999),), ranks=32, nodes=4)
    result = grade(run, run.measurements[0], KnownHardware(rails=8, rail_bytes_per_second=50e9, algorithm="ring"))
    assert (result.grade, result.reason) == ("", "below 1 GB")
    run = results.BenchmarkRun(Path("x"), "nccl-tests JSON", (row("all_reduce"),), ranks=16, nodes=2)
    result = grade(run, run.measurements[0], KnownHardware(rails=8, rail_bytes_per_second=50e9))
    assert (result.theory.low, result.theory.high) == (400e9, pytest.approx(750e9))
    assert result.ratios == (pytest.approx(0.4), 0.75)
    assert (result.grade, result.reason) == ("", "algorithm unknown")


@pytest.mark.parametrize(
    ("collective", "nodes", "bound", "good", "poor"),
    [("all_reduce", 4, 400, 350, 299), ("all_gather", 8, 400, 375, 290), ("alltoall", 2, 93.75, 85, 56)],
)
def test_published_rates_have_their_grades(collective: str, nodes: int, bound: float, good: float, poor: float) -> None:
    """Rings over several nodes reach 350 to 375 of 400 GB/s, all-to-all 0.9 of its bound."""
    hardware = KnownHardware(rails=8, rail_bytes_per_second=50e9, algorithm="" if collective == "alltoall" else "ring")
    for rate, expected in ((good, "good"), (poor, "poor")):
        run = results.BenchmarkRun(
            Path("x"), "nccl-tests text", (row(collective, rate * 1e9),), ranks=8 * nodes, nodes=nodes
        )
        result = grade(run, run.measurements[0], hardware)
        assert result.theory.low == result.theory.high == pytest.approx(bound * 1e9)
        assert result.grade == expected


@pytest.mark.parametrize(("rate", "expected"), [(360e9, "good"), (320e9, "fair"), (290e9, "poor"), (410e9, "")])
def test_a_ring_over_four_nodes_is_graded(rate: float, expected: str) -> None:
    run = results.BenchmarkRun(Path("x"), "nccl-tests JSON", (row("all_reduce", rate),), ranks=32, nodes=4)
    assert (
        grade(run, run.measurements[0], KnownHardware(rails=8, rail_bytes_per_second=50e9, algorithm="ring")).grade
        == expected
    )


def test_unknown_inputs_are_named() -> None:
    assert bound_of(row("all_reduce"), None, None, KnownHardware()).missing == ("--ranks", "--nodes")
    assert bound_of(row("all_reduce"), 16, 2, KnownHardware()).missing == ("--rails", "--rate")
    assert bound_of(row(""), 16, 2, KnownHardware()).missing == ("--collective",)
    assert bound_of(row("all_gather"), 8, 1, KnownHardware()).missing == ("--gpu-rate",)
    inside = bound_of(row("all_reduce"), 8, 1, KnownHardware(gpu_bytes_per_second=450e9))
    assert (inside.low, inside.high, inside.tier) == (450e9, None, GPU_LINKS)


@pytest.mark.parametrize(
    ("program", "name"),
    [("all_reduce_perf", "all_reduce"), ("/a/b/alltoall_perf_mpi", "alltoall"), ("rm -rf", ""), ("evil_perf", "")],
)
def test_only_known_programs_name_a_collective(program: str, name: str) -> None:
    assert results.collective_of_program(program) == name


def test_suspects_are_named_by_topology() -> None:
    rails = [RecordedPort(f"mlx5_{place}", 1, 50e9) for place in range(3)]
    rails += [
        RecordedPort("mlx5_3", 1, 25e9, identity=PortIdentity(gpu_distance="SYS")),
        RecordedPort("mlx5_4", 1, 50e9, active=False, state="DOWN"),
        RecordedPort("mlx5_5", 1, 50e9, identity=PortIdentity(gpu_distance="NODE")),
    ]
    found = find_suspects(rails, [0.25, 0.001, 0.25, 0.25, 0.0, 0.25])
    assert [(one.rail, one.kind) for one in found] == [
        ("mlx5_1:1", "idle rail"),
        ("mlx5_3:1", "wrong rate"),
        ("mlx5_3:1", "NUMA crossing"),
        ("mlx5_4:1", "link down"),
        ("mlx5_5:1", "PCIe path"),
    ]
    assert found[1].evidence == "its rate is 25 GB/s, that of the fastest rail 50 GB/s"
