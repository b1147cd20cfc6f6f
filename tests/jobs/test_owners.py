"""From GPUs to rails on trees of real machines, and by rules on topologies in which every distance is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.aggregator.jobs import JobTotals
from ibpulse.agent.aggregator.snapshot import AggregatorOptions
from ibpulse.agent.jobs.owners import count_owners, place_jobs
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.model import DevicePlace, Gpu, PortId, Topology
from tests.aggregator.rings import Ring, port
from tests.jobs.job_nodes import UID
from tests.running import HANG_SECONDS
from tests.sysfs.machines import Machine
from tests.sysfs.published import DGX_H100, DGX_H100_RAILS
from tests.tables import for_each


def gpus(*numbers: int, vendor: str = "0x10de") -> tuple[Gpu, ...]:
    return tuple(Gpu(address(number), vendor, "0x2330") for number in numbers)


def address(number: int) -> str:
    return f"0000:{number:02x}:00.0"


def topology(gpus: tuple[Gpu, ...], **rows: str) -> Topology:
    """Devices with their distances to the GPUs, as words."""
    devices = tuple(DevicePlace(name) for name in rows)
    return Topology(devices, gpus, tuple(tuple(words.replace("-", "").split(" ")) for words in rows.values()))


def placed(job: PlacedJob) -> tuple[list[str], str]:
    return [str(port) for port in job.ports], job.basis


def claim(name: str, *indexes: int, source: str = "slurm-map", devices: tuple[str, ...] = ()) -> Claim:
    return Claim(name, "slurm", source, gpu_indexes=indexes, devices=devices)


PORTS = (port("a:1"), port("b:1"), port("s:1", rail=False), port("s:2", rail=False))
# one card between two GPUs each, and a storage card near the first
PAIRS = topology(gpus(1, 2, 3, 4), a="PIX PIX SYS SYS", b="SYS SYS PIX PXB", s="PIX NODE SYS SYS")


@pytest.mark.parametrize("number", range(8))
def test_every_gpu_of_a_dgx_h100_leads_to_its_own_rail(tmp_path: Path, number: int) -> None:
    machine = Machine(tmp_path / "sys")
    DGX_H100.build(machine)
    fabric = Inventory(machine.root, timeout_seconds=HANG_SECONDS).scan()
    others = claim("2", *(index for index in range(8) if index != number))
    first, second = place_jobs((claim("1", number), others), fabric.ports, fabric.topology).jobs
    assert placed(first) == ([f"{DGX_H100_RAILS[number]}:1"], "gpus")
    assert {port.device for port in second.ports} == {*DGX_H100_RAILS} - {DGX_H100_RAILS[number]}


BOTH, NONE = ["a:1", "b:1"], ([], "")
A, B = (["a:1"], "gpus"), (["b:1"], "gpus")
FAR = topology(gpus(1, 2), a="SYS PIX", b="SYS SYS")
NEAR = topology(gpus(1, 2), a="PIX PXB", b="PXB PIX")
HIDDEN = topology((), a="", b="")
MIXED = Topology(
    (DevicePlace("a"), DevicePlace("b")),
    (*gpus(1, vendor="0x1002"), *gpus(2, 3)),
    (("SYS", "PIX", "SYS"), ("SYS", "SYS", "PIX")),
)


def document(name: str, *devices: str, gpus: tuple[int, ...] = ()) -> Claim:
    return claim(name, *gpus, source="file", devices=devices)


def pod(name: str, *devices: str) -> Claim:
    return Claim(name, "kubernetes", "kubernetes-cgroup", devices=devices)


@for_each(
    {
        "the nearer of two near rails": (NEAR, (claim("1", 0), claim("2", 1)), (A, B)),
        **{
            f"no rail at {word}": (
                topology(gpus(1, 2), a=f"{word} PIX", b=f"{word} {word}"),
                (claim("1", 0), claim("2", 1)),
                (NONE, A),
            )
            for word in ("PHB", "NODE", "SYS", "-")
        },
        "all GPUs have all rails, also those near none": (
            topology(gpus(1, 2), a="PIX PIX", b="SYS SYS"),
            (claim("1", 0, 1), claim("2")),
            ((BOTH, "all-gpus"), NONE),
        ),
        "alone": (PAIRS, (claim("1"),), ((BOTH, "alone"),)),
        "alone with all GPUs": (PAIRS, (claim("1", 0, 1, 2, 3),), ((BOTH, "all-gpus"),)),
        "alone with GPUs near no rail": (FAR, (claim("1", 0),), ((BOTH, "alone"),)),
        "devices where no GPU leads to a rail": (FAR, (document("1", "b", gpus=(0,)),), ((["b:1"], "devices"),)),
        "a pod that mounts storage over RDMA": (PAIRS, (pod("1", "s"),), (NONE,)),
        "a pod with a device that is not sampled": (PAIRS, (pod("1", "x"),), (NONE,)),
        "hidden GPUs, alone": (HIDDEN, (claim("1", 0),), ((BOTH, "alone"),)),
        "hidden GPUs, not alone": (HIDDEN, (claim("1", 0), claim("2", 1)), (NONE, NONE)),
        "all ports of a document's devices, the rails of a pod's": (
            PAIRS,
            (document("1", "s", "a"), pod("2", "s", "a")),
            ((["a:1", "s:1", "s:2"], "devices"), (["a:1"], "devices")),
        ),
        "indexes count the GPUs of one vendor": (
            MIXED,
            (claim("1", 0), claim("2", 1)),
            (A, B),
        ),
    }
)
def test_jobs_own_the_rails_that_they_hold(
    places: Topology, claims: tuple[Claim, ...], expected: tuple[tuple[list[str], str], ...]
) -> None:
    found = place_jobs(claims, PORTS, places)
    assert tuple(map(placed, found.jobs)) == expected
    assert all("x, which this node does not have" in remark for remark in found.remarks)


def test_two_jobs_on_one_port_are_counted() -> None:
    jobs = place_jobs((claim("1", 0), claim("2", 1), claim("3", 3)), PORTS, PAIRS).jobs
    assert [placed(job) for job in jobs] == [(["a:1"], "gpus"), (["a:1"], "gpus"), (["b:1"], "gpus")]
    assert count_owners(jobs) == {PortId("a", 1): 2, PortId("b", 1): 1}


def test_a_job_is_not_alone_if_there_may_be_others() -> None:
    (only,) = place_jobs((claim("1"),), PORTS, PAIRS, whole=False).jobs
    assert placed(only) == NONE


def test_a_device_that_the_node_does_not_have_is_a_remark() -> None:
    found = place_jobs((document("1", "x"),), PORTS, PAIRS)
    assert [placed(job) for job in found.jobs] == [(BOTH, "alone")]
    assert found.remarks == ("job 1: it holds x, which this node does not have.",)


@for_each(
    {
        "GPUs": (claim("1", 0), claim("2", 2, 3), (["a:1"], "gpus")),
        "devices": (document("1", "a", "s"), document("2", "b"), (["a:1", "s:1", "s:2"], "devices")),
    }
)
def test_the_end_of_another_job_changes_no_port_of_a_job_whose_place_is_known(
    first: Claim, other: Claim, expected: tuple[list[str], str]
) -> None:
    both = place_jobs((first, other), PORTS, PAIRS).jobs
    assert place_jobs((first,), PORTS, PAIRS).jobs == both[:1]
    assert placed(both[0]) == expected


def test_what_the_node_does_not_have_is_one_sentence_per_job_and_kind() -> None:
    unknown = claim("1", *range(100), source="file", devices=tuple(f"x{number}" for number in range(64)))
    assert place_jobs((unknown,), PORTS, PAIRS).remarks == (
        "job 1: it holds GPU 4, 5, 6, 7 and 92 more, which this node does not have.",
        "job 1: it holds x0, x1, x2, x3 and 60 more, which this node does not have.",
    )


def test_a_pod_that_opens_every_device_is_one_more_job_on_each_rail(tmp_path: Path) -> None:
    mine = Claim("1", "slurm", "slurm-map", gpu_indexes=(0,))
    greedy = Claim(UID, "kubernetes", "kubernetes-cgroup", devices=("a", "b", "s"))
    ring = Ring.create(tmp_path, *PORTS)
    totals = JobTotals(ring.reader, AggregatorOptions())
    for claims, counts, with_statistics in (
        ((mine, Claim("2", "slurm", "slurm-map", gpu_indexes=(2,))), [1, 1], ["1", "2"]),
        ((mine, greedy), [2, 1], []),
    ):
        jobs = place_jobs(claims, PORTS, PAIRS).jobs
        assert [count_owners(jobs)[port.id] for port in PORTS if port.rail] == counts
        totals.follow(jobs, 1)
        assert [job.job_id for job in totals.snapshots()] == with_statistics
