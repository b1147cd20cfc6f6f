"""An exception in a part of the daemon ends neither sampling nor serving: it is counted, logged once, and retried."""

from __future__ import annotations

import html
import logging
import os
from pathlib import Path

import pytest

from ibpulse.base.internal_errors import PARTS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile
from tests.fabrics import add_device
from tests.tables import for_each
from tests.virtual.node import Node

THREE = {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}
NOT_UTF8 = os.fsdecode(b"mlx5_\xff")
UNUSABLE = {
    (NOT_UTF8, 1): r"mlx5_\xff: ignored, because its name is not UTF-8",
    ("w31", 999): "w31: port 999 is ignored, because port numbers end at 255",
    ("m" * 200, 1): "its name has 200 bytes, too many for the ring",
}


def make_node(folder: Path, *flags: str) -> Node:
    """Three devices of plain files, whose counters stand still."""
    folder.mkdir(exist_ok=True)
    for number in range(3):
        add_device(folder / "sys", f"mlx5_{number}")
    return Node(folder, "--slow.interval=1s", *flags, tree=folder / "sys")


def sampled(node: Node) -> set[str]:
    """The ports with samples in the last half second."""
    window = node.window("500ms").items()
    return {name.partition(" ")[0] for name, values in window if any(value is not None for value in values)}


def notices(node: Node) -> str:
    return "\n".join(node.get("/api/v1/ports")["notices"])


def errors(node: Node) -> dict[str, int]:
    """The internal errors of every part."""
    found = node.metrics().find("ibpulse_internal_errors_total")
    return {dict(labels)["part"]: int(count) for labels, count in found.items()}


@for_each([True, False])
def test_ports_that_cannot_be_sampled_are_said_and_the_others_are_sampled(at_start: bool, folder: Path) -> None:
    with make_node(folder / f"{at_start}") as node:
        if not at_start:
            node.run(3)
            assert errors(node) == dict.fromkeys(PARTS, 0)
        for device, port in UNUSABLE:
            add_device(node.tree, device, port)
        node.run(8)
        assert [notice for notice in UNUSABLE.values() if notice not in notices(node)] == []
        assert sampled(node) == THREE
        assert errors(node) == dict.fromkeys(PARTS, 0)


def test_a_plan_that_cannot_be_written_is_said_and_written_later(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with make_node(folder) as node:
        node.run(3)
        # in the way of the new plan
        obstacle = folder / "ring" / "plan-0.json.new"
        obstacle.mkdir()
        add_device(node.tree, "mlx5_3")
        node.run(5)
        failed = errors(node)
        sentence = f"the sampler's plan {folder}/ring/plan-0.json cannot be written: Is a directory"
        assert failed["plan"] >= 2
        assert sentence in notices(node)
        assert "Internal errors in plan; see the log." in node.ask("/-/ready").text
        assert sentence in html.unescape(node.ask("/").text)
        assert caplog.text.count(sentence) == 1
        assert sampled(node) >= THREE
        obstacle.rmdir()
        node.run(5)
        assert sampled(node) == {*THREE, "mlx5_3:1"}
        failed = errors(node)
        node.stop()
    assert {part for part, count in failed.items() if count} == {"plan"}
    assert f"there were internal errors: plan {failed['plan']}" in caplog.text


def test_a_damaged_ring_withdraws_the_statistics_and_nothing_else(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Something wrote into the table of slots: no number of bytes per count is as high as that of a port."""
    # a scan would repair it
    with make_node(folder, "--slow.interval=10m") as node:
        node.run(3)
        ring = RingFile(folder / "ring" / "ring")
        damaged = at.slot_at(ring.slots()["mlx5_1:1"]) + at.S_SCALE
        scale, ring.words[damaged] = ring.words[damaged], at.ABSENT
        for _ in range(10):
            # each second is aggregated when somebody asks
            node.run(1)
            node.metrics()
        assert errors(node)["aggregation"] >= 2
        assert not node.metrics().find("ibpulse_sampler_ticks_total")
        assert "OverflowError" in notices(node)
        assert caplog.text.count("internal error in aggregation") == 1
        assert node.ask("/-/healthy").status_code == 200
        ring.words[damaged] = scale
        ring.close()
        node.run(5)
        assert node.metrics().find("ibpulse_port_transmit_bytes_total")


def test_a_node_without_devices_is_ready_until_one_appears(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (folder / "sys").mkdir()
    with Node(folder, "--slow.interval=1s", tree=folder / "sys") as node:
        node.run(3)
        ready = node.ask("/-/ready")
        assert (ready.status_code, node.ask("/-/healthy").status_code) == (200, 200)
        assert "no port can be sampled" in ready.text
        assert not node.metrics().find("ibpulse_port_up")
        assert "/sys/class/infiniband does not exist: " in caplog.text
        for number in range(2):
            add_device(node.tree, f"mlx5_{number}")
        node.run(8)
        assert node.metrics().find("ibpulse_port_transmit_bytes_total", device="mlx5_1")
        assert sampled(node) == {"mlx5_0:1", "mlx5_1:1"}
    told = " ".join(message for message in caplog.messages if "now sampling: port " in message)
    assert all(name in told for name in ("mlx5_0:1", "mlx5_1:1"))
