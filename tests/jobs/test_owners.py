"""From GPUs to rails on trees of real machines, and by rules on topologies in which every distance is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.jobs.owners import count_owners, place_jobs
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.jobs import Claim, PlacedJob
from ibpulse.core.model import DevicePlace, Gpu, PortId, Topology
from tests.aggregator.rings import port
from tests.sysfs.machines import Machine
from tests.sysfs.published import DGX_H100, DGX_H100_RAILS


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
    fabric = Inventory(machine.root).scan()
    others = claim("2", *(index for index in range(8) if index != number))
    first, second = place_jobs((claim("1", number), others), fabric.ports, fabric.topology).jobs
    assert placed(first) == ([f"{DGX_H100_RAILS[number]}:1"], "gpus")
    assert {port.device for port in second.ports} == {*DGX_H100_RAILS} - {DGX_H100_RAILS[number]}


def test_two_jobs_on_one_port_are_counted() -> None:
    jobs = place_jobs((claim("1", 0), claim("2", 1), claim("3", 3)), PORTS, PAIRS).jobs
    assert [placed(job) for job in jobs] == [(["a:1"], "gpus"), (["a:1"], "gpus"), (["b:1"], "gpus")]
    assert count_owners(jobs) == {PortId("a", 1): 2, PortId("b", 1): 1}


def test_a_rail_that_is_near_but_farther_than_another_is_not_the_gpus() -> None:
    near = topology(gpus(1, 2), a="PIX PXB", b="PXB PIX")
    first, second = place_jobs((claim("1", 0), claim("2", 1)), PORTS, near).jobs
    assert (placed(first), placed(second)) == ((["a:1"], "gpus"), (["b:1"], "gpus"))


@pytest.mark.parametrize("word", ["PHB", "NODE", "SYS", "-"])
def test_a_gpu_without_a_near_rail_leads_to_none(word: str) -> None:
    far = topology(gpus(1, 2), a=f"{word} PIX", b=f"{word} {word}")
    first, _ = place_jobs((claim("1", 0), claim("2", 1)), PORTS, far).jobs
    assert placed(first) == ([], "")


def test_a_job_with_all_gpus_has_all_rails_also_those_near_none() -> None:
    far = topology(gpus(1, 2), a="PIX PIX", b="SYS SYS")
    first, second = place_jobs((claim("1", 0, 1), claim("2")), PORTS, far).jobs
    assert (placed(first), placed(second)) == ((["a:1", "b:1"], "all-gpus"), ([], ""))


@pytest.mark.parametrize("indexes", [(), (0, 1, 2, 3)])
def test_a_job_alone_on_the_node_has_all_rails(indexes: tuple[int, ...]) -> None:
    (job,) = place_jobs((claim("1", *indexes),), PORTS, PAIRS).jobs
    assert placed(job) == (["a:1", "b:1"], "all-gpus" if indexes else "alone")


def test_the_end_of_another_job_changes_no_rail_of_a_job_whose_gpus_are_known() -> None:
    both = place_jobs((claim("1", 0), claim("2", 2, 3)), PORTS, PAIRS).jobs
    assert place_jobs((claim("1", 0),), PORTS, PAIRS).jobs == both[:1]
    assert placed(both[0]) == (["a:1"], "gpus")


def test_the_end_of_another_job_changes_no_port_of_a_job_whose_devices_are_known() -> None:
    first = claim("1", source="file", devices=("a", "s"))
    both = place_jobs((first, claim("2", source="file", devices=("b",))), PORTS, PAIRS).jobs
    assert place_jobs((first,), PORTS, PAIRS).jobs == both[:1]
    assert placed(both[0]) == (["a:1", "s:1", "s:2"], "devices")


def test_devices_decide_where_no_gpu_leads_to_a_rail() -> None:
    far = topology(gpus(1, 2), a="SYS PIX", b="SYS SYS")
    (job,) = place_jobs((claim("1", 0, source="file", devices=("b",)),), PORTS, far).jobs
    assert placed(job) == (["b:1"], "devices")


def test_a_job_alone_whose_devices_the_node_does_not_have_has_all_rails_and_a_remark() -> None:
    found = place_jobs((claim("1", source="file", devices=("x",)),), PORTS, PAIRS)
    assert [placed(job) for job in found.jobs] == [(["a:1", "b:1"], "alone")]
    assert found.remarks == ("job 1: it holds x, which this node does not have.",)


def test_a_job_is_not_alone_if_there_may_be_others() -> None:
    (only,) = place_jobs((claim("1"),), PORTS, PAIRS, whole=False).jobs
    assert placed(only) == ([], "")


@pytest.mark.parametrize("device", ["s", "x"])
def test_a_pod_has_no_rail_that_it_has_not_open_also_alone(device: str) -> None:
    """A pod that mounts storage over RDMA, and one with a device that is not sampled."""
    (job,) = place_jobs((Claim("1", "kubernetes", "kubernetes-cgroup", devices=(device,)),), PORTS, PAIRS).jobs
    assert placed(job) == ([], "")


def test_a_job_alone_whose_gpus_are_near_no_rail_has_all_rails() -> None:
    far = topology(gpus(1, 2), a="SYS PIX", b="SYS SYS")
    (job,) = place_jobs((claim("1", 0),), PORTS, far).jobs
    assert placed(job) == (["a:1", "b:1"], "alone")


def test_on_a_node_whose_gpus_are_hidden_only_a_job_alone_has_rails() -> None:
    hidden = topology((), a="", b="")
    (alone,) = place_jobs((claim("1", 0),), PORTS, hidden).jobs
    assert placed(alone) == (["a:1", "b:1"], "alone")
    found = place_jobs((claim("1", 0), claim("2", 1)), PORTS, hidden)
    assert [placed(job) for job in found.jobs] == [([], ""), ([], "")]
    assert found.remarks == ()


def test_devices_of_a_document_are_all_their_ports_and_those_of_a_pod_only_rails() -> None:
    document = claim("1", source="file", devices=("s", "a"))
    pod = Claim("2", "kubernetes", "kubernetes-cgroup", devices=("s", "a"))
    first, second = place_jobs((document, pod), PORTS, PAIRS).jobs
    assert placed(first) == (["a:1", "s:1", "s:2"], "devices")
    assert placed(second) == (["a:1"], "devices")


def test_what_the_node_does_not_have_is_one_sentence_per_job_and_kind() -> None:
    unknown = claim("1", *range(100), source="file", devices=tuple(f"x{number}" for number in range(64)))
    assert place_jobs((unknown,), PORTS, PAIRS).remarks == (
        "job 1: it holds GPU 4, 5, 6, 7 and 92 more, which this node does not have.",
        "job 1: it holds x0, x1, x2, x3 and 60 more, which this node does not have.",
    )


def test_indexes_count_the_gpus_of_one_vendor() -> None:
    mixed = Topology(
        (DevicePlace("a"), DevicePlace("b")),
        (*gpus(1, vendor="0x1002"), *gpus(2, 3)),
        (("SYS", "PIX", "SYS"), ("SYS", "SYS", "PIX")),
    )
    first, second = place_jobs((claim("1", 0), claim("2", 1)), PORTS, mixed).jobs
    assert (placed(first), placed(second)) == ((["a:1"], "gpus"), (["b:1"], "gpus"))
