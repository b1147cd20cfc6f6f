"""`/api/v1/topology` and what `/metrics` and `/api/v1/ports` say of the same node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.answers.node import PortsAnswer, TopologyAnswer
from tests.sysfs.machines import GEN4, GEN5, Machine, write_link
from tests.web.conftest import make_client
from tests.web.rings import Node

NIC = "15/15:01.0/16:00.0/17:00.0/18:00.0"
GPU = "15/15:01.0/16:00.0/17:01.0/19:00.0"
FAR = "25/25:01.0/26:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "sys")
    made.add_nic("mlx5_0", NIC, link=write_link(GEN4, 16, GEN5, 16))
    made.add_gpu(GPU)
    made.add_gpu(FAR, 1)
    return made


async def ask(node: Node, machine: Machine, path: str) -> dict:
    fabric = Inventory(machine.root).scan()
    async with make_client(node.parts(fabric=lambda: fabric)) as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    return answer.json()


async def test_devices_gpus_and_distances_are_described(node: Node, machine: Machine) -> None:
    answer = await ask(node, machine, "/api/v1/topology")
    assert json.loads(TopologyAnswer.model_validate_json(json.dumps(answer)).encode()) == answer
    assert answer["distances"] == {"mlx5_0": {"0000:19:00.0": "PIX", "0000:26:00.0": "SYS"}}
    assert [(gpu["address"], gpu["name"], gpu["form_factor"], gpu["numa_node"]) for gpu in answer["gpus"]] == [
        ("0000:19:00.0", "H100 80GB", "SXM", 0),
        ("0000:26:00.0", "H100 80GB", "SXM", 1),
    ]


async def test_a_device_is_described_with_every_link_and_verdict(node: Node, machine: Machine) -> None:
    (device,) = (await ask(node, machine, "/api/v1/topology"))["devices"]
    assert (device["kind"], device["gpus"], device["gpu_distance"]) == ("pf", ["0000:19:00.0"], "PIX")
    assert [(link["upper"], link["speed_gts"], link["max_speed_gts"]) for link in device["links"]] == [
        ("0000:15:01.0", 32.0, 32.0),
        ("0000:17:00.0", 16.0, 32.0),
    ]
    assert device["pcie_bytes_per_second"] == pytest.approx(31.5e9, rel=0.001)
    (verdict,) = device["verdicts"]
    assert verdict["word"] == "downtrained"
    assert verdict["sentence"].startswith("its PCIe link runs at 16 GT/s x16, but both ends support 32 GT/s x16")


async def test_a_port_names_its_kind_and_gpu(node: Node, machine: Machine) -> None:
    answer = await ask(node, machine, "/api/v1/ports")
    PortsAnswer.model_validate(answer)
    identity = answer["ports"][0]["identity"]
    assert (identity["kind"], identity["gpu"], identity["gpu_distance"]) == ("pf", "0000:19:00.0", "PIX")


async def test_a_node_without_devices_has_an_empty_topology(node: Node, tmp_path: Path) -> None:
    answer = await ask(node, Machine(tmp_path / "empty"), "/api/v1/topology")
    assert answer == {"devices": [], "gpus": [], "distances": {}}
