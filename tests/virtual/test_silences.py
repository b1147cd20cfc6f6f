"""What a node says of a job that falls silent: the answer for gateways, its own verdict as an event, and the metric."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.jobs.watch import JobsView
from ibpulse.agent.node.silence import JobSilences
from ibpulse.core.events import Event, EventLog
from ibpulse.core.model import STORAGE, Fabric
from ibpulse.core.ring.layout import H_CREATED_WALL_NS
from tests.aggregator.rings import Ring, constant, port
from tests.clocks import GivenClock
from tests.tables import for_each
from tests.virtual.fleet import Fleet
from tests.virtual.node import Node

JOB = "1001"


def alone(path: Path, *flags: str, rails: int = 2) -> Fleet:
    """A node of two rails with one job in regular steps."""
    path.mkdir(exist_ok=True)
    made = Fleet(path, 1, "--slow.interval=5s", *flags, straggler=0, rails=rails, workload="dense")
    made.run(24)
    return made


def silence(node: Node) -> dict[str, Any]:
    (job,) = node.get("/api/v1/silences")["jobs"]
    return dict(job)


def stall(node: Node) -> list[float]:
    return [*node.metrics().find("ibpulse_job_stall").values()]


def verdicts(node: Node) -> list[dict[str, Any]]:
    (job,) = node.get("/api/v1/verdicts")["jobs"]
    assert (job["job_id"], job["scheduler"], job["armed"]) == (JOB, "simulated", True)
    return list(job["stalls"])


def stalls(node: Node) -> list[Event]:
    return node.events("job-stalled")


def test_the_answer_has_the_last_bytes_up_to_a_fifth_of_a_second(tmp_path: Path) -> None:
    with alone(tmp_path) as fleet:
        (node,) = fleet.nodes
        busy = silence(node)
        assert (busy["job_id"], busy["scheduler"], busy["notable"]) == (JOB, "simulated", False)
        now_ms = node.clock.time_ns() // 10**6
        assert 0 <= now_ms - busy["known_until_ms"] <= 250
        # steps of 357 ms have silences of 90 ms
        assert 60 <= busy["regular_ms"] <= 120
        assert all(60 <= each["end_ms"] - each["begin_ms"] <= 120 for each in busy["pauses"])
        stopped_ms = node.clock.time_ns() / 1e6
        node.play("idle")
        node.run(3)
        quiet = silence(node)
        assert (quiet["notable"], quiet["regular_ms"], quiet["storage"]) == (True, busy["regular_ms"], None)
        assert [rail["port"] for rail in quiet["rails"]] == ["mlx5_0:1", "mlx5_1:1"]
        for rail in quiet["rails"]:
            for last in (rail["sent"], rail["received"]):
                assert last["ms"] - last["uncertainty_ms"] <= stopped_ms <= last["ms"] + 150
                assert last["uncertainty_ms"] <= 26
            assert (rail["active"], rail["lost"], rail["retried"]) == (True, None, None)
            # lost packets are counted every second from the first silent one on
            assert quiet["known_until_ms"] - rail["counted_until_ms"] < 1500


def test_a_silence_without_a_cause_is_an_event_soon_and_a_stall_after_three_minutes(tmp_path: Path) -> None:
    with alone(tmp_path) as fleet:
        (node,) = fleet.nodes
        assert (stall(node), stalls(node)) == ([0], [])
        node.play("idle")
        node.run(3)
        (event,) = stalls(node)
        assert event.text == "job 1001 is silent: the cause is not known"
        words = node.daemon.node.reader.ring.words
        assert (event.tick, event.ring) == (event.time_ns // node.interval_ns, words[H_CREATED_WALL_NS])
        assert (event.details["kind"], event.details["unknown"]) == ("unknown", ["what the other nodes of the job did"])
        assert stall(node) == [0]
        node.run(170)
        assert stall(node) == [0]
        node.run(10)
        assert stall(node) == [1]
        (found,) = verdicts(node)
        assert (found["verdict"], found["push_after_ms"], found["pushed"]) == ("unknown", 180_000, True)
        assert found["silent_ms"] == pytest.approx(182_500, abs=1000)
        node.play("dense")
        node.run(3)
        assert stall(node) == [0]
        (found,) = verdicts(node)
        assert (found["resumed"], found["ended_ms"] - found["since_ms"]) == (True, pytest.approx(183_500, abs=1000))
        assert [each.text for each in node.events("job-resumed")] == ["job 1001 moves bytes again"]
        # a silence as long as the last one is a pause of this job
        node.play("idle")
        node.run(190)
        assert (len(stalls(node)), stall(node)) == (2, [0])


def lose_link(node: Node) -> None:
    node.put("mlx5_1", "state", "1: DOWN")


def lose_packets(node: Node) -> None:
    node.run(2)
    node.put("mlx5_1", "local_ack_timeout_err", "7")


def lose_device(node: Node) -> None:
    node.vanish("mlx5_1")


def lose_packets_after_a_step_back(node: Node) -> None:
    node.play("dense")
    node.clock.step(-3600)
    node.run(3)
    node.play("idle")
    lose_packets(node)


@for_each(
    [
        (lose_device, "link", "mlx5_1:1 lost its link"),
        (lose_packets_after_a_step_back, "loss", "mlx5_1:1 counted lost packets"),
        (lose_link, "link", "mlx5_1:1 lost its link"),
        (lose_packets, "loss", "mlx5_1:1 counted lost packets"),
    ]
)
def test_a_cause_that_the_node_sees_is_a_stall_at_once(
    cause: Callable[[Node], None], kind: str, text: str, folder: Path
) -> None:
    with alone(folder / cause.__name__) as fleet:
        (node,) = fleet.nodes
        node.play("idle")
        cause(node)
        node.run(4)
        event = stalls(node)[-1]
        assert (event.details["kind"], event.details["rails"]) == (kind, ["mlx5_1:1"])
        assert text in event.text
        assert stall(node) == [1]
        assert [rail["port"] for rail in silence(node)["rails"]] == ["mlx5_0:1", "mlx5_1:1"]


def test_connections_that_end_in_a_silence_put_its_alert_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = {"mlx5_0": 64, "mlx5_1": 64}

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not allowed")

    for name, value in {
        "is_kernel_tree": lambda root: True,
        "open_monitor": lambda: None,
        "read_port": refuse,
        "count_queue_pairs": pairs.__getitem__,
    }.items():
        monkeypatch.setattr(f"ibpulse.agent.node.node.{name}", value)

    def rails() -> tuple[dict[str, Any], dict[str, Any]]:
        first, second = silence(node)["rails"]
        return first, second

    with alone(tmp_path) as fleet:
        (node,) = fleet.nodes
        assert [rail["closed"] for rail in rails()] == [None, None]
        node.play("idle")
        node.run(4)
        # fewer, but not by half
        pairs.update(mlx5_0=40, mlx5_1=2)
        closed_ms = node.clock.time_ns() / 1e6
        node.run(4)
        first, second = rails()
        assert (first["closed"], first["connected_until_ms"] > closed_ms) == (None, True)
        assert second["closed"]["ms"] - second["closed"]["uncertainty_ms"] <= closed_ms <= second["closed"]["ms"]
        assert second["closed"]["uncertainty_ms"] < 1500
        assert second["connected_until_ms"] <= closed_ms
        assert verdicts(node)[0]["push_after_ms"] == 600_000
        # the next run has connections, but has not used them yet, and its steps are not known
        closed = second["closed"]
        pairs.update(mlx5_0=64, mlx5_1=64)
        node.run(4)
        again = rails()[1]
        assert (again["closed"], again["sent"], silence(node)["regular_ms"]) == (closed, None, None)
        assert (len(stalls(node)), node.events("job-resumed")) == (1, [])
        node.play("dense")
        node.run(8)
        assert rails()[1]["closed"] is None
        assert verdicts(node)[0]["resumed"]


def lose_some_before(node: Node) -> None:
    node.run(3)
    node.put("mlx5_1", "local_ack_timeout_err", "100")
    node.run(6)
    node.play("idle")
    node.run(3)


def fail_once(node: Node) -> None:
    node.put("mlx5_1", "packet_seq_err", "5")
    lose_some_before(node)
    node.fail("mlx5_1", errno.EIO, "local_ack_timeout_err")
    node.run(2)
    node.answer()


def step_forward(node: Node) -> None:
    lose_some_before(node)
    node.clock.step(20)


@for_each([(fail_once,), (step_forward,)])
def test_packets_that_were_lost_before_the_silence_are_no_cause(happen: Callable[[Node], None], folder: Path) -> None:
    with alone(folder / happen.__name__) as fleet:
        (node,) = fleet.nodes
        happen(node)
        node.run(4)
        assert {event.details["kind"] for event in stalls(node)} == {"unknown"}
        assert stall(node) == [0]


@for_each([3600.0, -3600.0])
def test_a_step_of_the_clock_does_not_change_the_length_of_a_silence(seconds: float, folder: Path) -> None:
    with alone(folder / f"{seconds:g}") as fleet:
        (node,) = fleet.nodes
        node.play("idle")
        node.run(3)
        node.clock.step(seconds)
        node.run(3)
        assert stall(node) == [0]
        (rail, _) = silence(node)["rails"]
        assert abs(node.clock.time_ns() / 1e6 - rail["sent"]["ms"] - 6000) < 400
        # it is the same silence, on the new clock
        (found,) = verdicts(node)
        assert (found["since_ms"], found["ended_ms"]) == (rail["sent"]["ms"], None)
        assert (len(stalls(node)), node.events("job-resumed")) == (1, [])


def test_a_silence_that_a_checkpoint_explains_for_a_while_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with alone(tmp_path) as fleet:
        (node,) = fleet.nodes
        node.play("idle")
        node.run(3)
        with monkeypatch.context() as busy:
            busy.setattr("ibpulse.agent.node.silence.judge", lambda nodes: None)
            node.run(3)
        node.run(3)
        assert len(stalls(node)) == 1
        node.play("dense")
        node.run(3)
        assert len(node.events("job-resumed")) == 1


def test_silences_are_not_none_after_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(tmp_path) as fleet:
        (node,) = fleet.nodes
        monkeypatch.delattr(JobSilences, "describe")
        assert node.ask("/api/v1/silences").status_code == 503


def test_a_storage_port_that_comes_back_did_not_carry_its_whole_counter(tmp_path: Path) -> None:
    one, other = (replace(port(f"mlx5_{number}", rail=False), role=STORAGE) for number in range(2))
    ring, now = Ring.create(tmp_path, one, other), 0
    ring.file.clock = GivenClock(lambda: now / 1e9, lambda: now)
    for each in (one, other):
        ring.write(str(each.id), (constant(0), constant(0)), 1, 1000, start=(10**12, 0))
    silences = JobSilences(ring.reader, EventLog(), 1.0)
    for second, ports in enumerate([(one,), (one, other), (one,), (one, other), (one, other)], 1):
        now = second * 10**9
        silences.update(JobsView(), Fabric(ports))
    assert silences._storage.last is None


def test_a_daemon_that_starts_during_a_silence_knows_its_begin(tmp_path: Path) -> None:
    with alone(tmp_path) as fleet:
        (node,) = fleet.nodes
        node.play("idle")
        node.run(3)
        before = silence(node)
        node.restart()
        node.run(10)
        after = silence(node)
        assert [rail["sent"] for rail in after["rails"]] == [rail["sent"] for rail in before["rails"]]
        assert after["regular_ms"] == pytest.approx(before["regular_ms"], abs=20)
        assert after["notable"]


def test_a_job_without_traffic_is_not_watched(tmp_path: Path) -> None:
    with Fleet(tmp_path, 1, straggler=0, rails=2, workload="idle") as fleet:
        fleet.run(70)
        (node,) = fleet.nodes
        assert (stall(node), stalls(node), silence(node)["notable"]) == ([], [], False)
