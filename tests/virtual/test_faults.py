"""What goes wrong on a node, in virtual time: no false rate, no false peak, missing data where nothing was read."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ibpulse.agent.daemon import HeldDirectory, InUseError
from ibpulse.core.recordings import load
from ibpulse.workbench.simulate.workloads import Constant
from tests.virtual.node import Node
from tests.virtual.rates import DEVICES, RATE, WORD, assert_no_false_peak, assert_no_false_rate, holes


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    """Four ports at a constant 20 GB/s in each direction, after ten seconds."""
    with Node(folder, "--slow.interval=1s", rails=4, workload=Constant(RATE)) as node:
        node.run(10)
        yield node


def test_a_killed_sampler_is_restarted_and_leaves_missing_data(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.samplers.kill()
    node.run(3)
    assert_no_false_rate(node, "6s")
    metrics = node.metrics()
    assert metrics.value("ibpulse_sampler_restarts_total") == 1
    # the supervisor sees it 0.1 s later, and the new process takes 0.05 s to its first sample, which has no rate
    assert holes(node.window("6s")["mlx5_0:1 transmit"]) == [16]
    assert metrics.value("ibpulse_sampler_missed_ticks_total") == 15
    assert "the sampler ended with status -9; restarting it" in caplog.text


def test_a_deleted_ring_directory_costs_no_sample_and_ends_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Node(folder, "--capture.allow-unauthenticated=true", rails=1, workload=Constant(RATE)) as node:
        node.run(5)
        shutil.rmtree(folder / "ring")
        node.run(2)
        assert {path.name for path in (folder / "ring").iterdir()} == {"events", "lock", "plan-0.json"}
        assert holes(node.window("5s")["mlx5_0:1 transmit"]) == []
        node.samplers.kill()
        node.run(3)
        assert holes(node.window("5s")["mlx5_0:1 transmit"]) == [16]
        node.post("/api/v1/captures", {"before": "4s", "after": "1s"})
        node.run(3)
        (listed,) = node.get("/api/v1/captures")["captures"]
        assert load(node.captures / listed["name"]).bytes_per_second.shape == (1, 2, 500)
        assert node.ask("/-/ready").text == "Ready: sampling 1 ports.\n"
    said = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [text for text in said if "was deleted" in text] == [
        f"ring.dir {folder / 'ring'} was deleted and is made again; the next daemon has no earlier samples"
    ]
    assert [text for text in said if "was deleted" not in text] == ["the sampler ended with status -9; restarting it"]


def test_a_sampler_that_ends_with_its_directory_comes_back(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Node(folder, rails=1, workload=Constant(RATE)) as node:
        node.run(5)
        shutil.rmtree(folder / "ring")
        node.samplers.kill()
        node.run(5)
        (missing,) = holes(node.window("8s")["mlx5_0:1 transmit"])
    assert missing <= 200
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == len(set(said)) <= 3


def test_a_directory_that_another_daemon_has_taken_ends_this_one(folder: Path) -> None:
    with Node(folder, rails=1, workload=Constant(RATE)) as node:
        node.run(2)
        shutil.rmtree(folder / "ring")
        with closing(HeldDirectory(folder / "ring")), pytest.raises(InUseError, match="is in use by another ibpulse"):
            node.run(2)


def test_a_node_without_a_sampler_is_not_ready(node: Node) -> None:
    assert node.ask("/-/ready").status_code == 200
    node.samplers.error = errno.ENOMEM
    node.samplers.kill()
    node.run(8)
    answer = node.ask("/-/ready")
    assert (answer.status_code, answer.text.split(";")[0]) == (503, "Not ready: no sample was taken for 8 s")
    node.samplers.error = 0
    node.run(8)
    assert node.ask("/-/ready").status_code == 200


def test_a_port_that_refuses_is_paused_and_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.fail("mlx5_2", errno.EINVAL)
    node.run(30)
    metrics = node.metrics()
    # three attempts for each of the two files, then none for a minute
    assert metrics.value("ibpulse_sampler_read_errors_total", device="mlx5_2", port="1") == 6
    assert caplog.text.count("port mlx5_2:1: a counter file keeps failing (EINVAL") == 1
    assert {device: metrics.port("left_alone", device) for device in DEVICES} == {
        **dict.fromkeys(DEVICES, 0),
        "mlx5_2": 1,
    }
    assert_no_false_rate(node, "5s")
    assert node.window("1s")["mlx5_2:1 transmit"] == [None] * 100
    node.answer()
    node.run(34)
    assert node.metrics().port("left_alone", "mlx5_2") == 0
    assert node.window("1s")["mlx5_2:1 transmit"] == [RATE] * 100


def test_a_counter_that_jumps_is_counted_told_and_never_taken_as_traffic(node: Node) -> None:
    before = node.metrics().port("transmit_bytes_total", "mlx5_0")
    node.jump("mlx5_0", 10**14)
    node.run(3)
    assert_no_false_rate(node, "6s")
    assert_no_false_peak(node)
    metrics = node.metrics()
    assert (metrics.port("jumps_total", "mlx5_0"), metrics.port("resets_total", "mlx5_0")) == (1, 0)
    assert [event.subject for event in node.events("counter-jump")] == ["mlx5_0:1"]
    assert holes(node.window("6s")["mlx5_0:1 transmit"]) == [1]
    # the traffic of the interval with the jump is unknown
    assert metrics.port("transmit_bytes_total", "mlx5_0") - before == pytest.approx(RATE * 2.99, abs=WORD)
