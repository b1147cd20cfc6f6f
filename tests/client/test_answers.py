"""What a daemon says: read as it is written, and refused when it is written by somebody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ibpulse.base.errors import DaemonError
from ibpulse.core.client.connection import DaemonConnection, ask_events, ask_metrics, ask_ports
from ibpulse.core.events import Event
from ibpulse.core.model import PortState
from tests.client.servers import Canned, canned
from tests.fleet.small_answers import EVENT, events_of, port_of, ports_of, state_of
from tests.tables import for_each


@pytest.fixture
def server() -> Iterator[Canned]:
    with canned() as state:
        yield state


def test_a_window_is_read_with_its_holes(server: Canned) -> None:
    values = np.array([[1, np.nan, 3], [4, 5, 6], [7, 8, 9]], dtype=np.float32)
    series = ["mlx5_0:1 transmit", "mlx5_0:1 receive", "mlx5_1:1 receive"]
    places = {"merged": 2, "unexplained": 0, "places": [[1, 1, 2], [2, 0, 1], [7, 0, 1]]}
    server.answer_window(values, resolution_ms=20, series=series, implausible=places)
    window = DaemonConnection(server.url).ask_window([("last", "1s")])
    assert server.asked[0][0] == "/api/v1/window?last=1s&format=npy"
    assert (window.start_ns, window.step_ns, window.newest_ns) == (10**9, 20_000_000, 2 * 10**9)
    np.testing.assert_array_equal(window.both("mlx5_0:1"), values[:2])
    np.testing.assert_array_equal(window.both("mlx5_1:1"), [[np.nan] * 3, values[2]])
    assert np.isnan(window.both("mlx5_2:1")).all()
    assert window.merged("mlx5_0:1").tolist() == [[False] * 3, [False, True, True]]


def test_another_service_is_recognised(server: Canned) -> None:
    connection = DaemonConnection(server.url)
    server.answer_window(np.zeros((3, 4)))
    with pytest.raises(DaemonError, match=r"^http://.*/api/v1/window: its answer is an array of another shape than it"):
        connection.ask_window([])
    for body in (b"", b"<html>", b'{"interval_seconds": "x"}'):
        for path, ask in (("ports", ask_ports), ("window", lambda connection: connection.ask_window([]))):
            server.answer(f"/api/v1/{path}", body)
            with pytest.raises(DaemonError, match="is this an ibpulse daemon of a compatible version"):
                ask(connection)


def test_ports_with_unknown_members_are_read(server: Canned) -> None:
    unknown = port_of(active=False, state="DOWN", rate_bytes_per_second=None, source=None)
    server.answer("/api/v1/ports", ports_of(unknown, port_of("mlx5_1", colour="green")))
    answer = ask_ports(DaemonConnection(server.url))
    assert (answer.interval_ns, answer.simulated) == (10_000_000, False)
    first, second = answer.ports
    assert (first.name, first.source, first.rate_bytes_per_second) == ("mlx5_0:1", None, None)
    assert second.source is not None
    assert (second.id, second.source.resolution_seconds, second.rate_bytes_per_second) == (("mlx5_1", 1), 0.01, 5e10)


def test_a_port_has_the_begin_of_its_state(server: Canned) -> None:
    gone = {"state": "disappeared", "since": "2025-11-21T00:00:00.250Z"}
    server.answer("/api/v1/ports", ports_of(port_of(**gone), port_of(state="DOWN"), port_of(since="yesterday")))
    first, *others = ask_ports(DaemonConnection(server.url)).ports
    assert (first.disappeared, first.since_ns) == (True, 1_763_683_200_250_000_000)
    assert [(port.disappeared, port.since_ns) for port in others] == [(False, None)] * 2


def test_events_are_read_with_the_states_of_their_ports(server: Canned) -> None:
    state = state_of(state="ACTIVE", active=True, rate_bytes_per_second=5e10)
    server.answer("/api/v1/events", events_of({"before": state, "details": {"a": [1]}}, left_out=3))
    found = ask_events(DaemonConnection(server.url), 1_763_683_200_000_000_001, 1_763_683_201_000_000_001)
    assert server.asked[0][0] == "/api/v1/events?limit=10000&from=1763683200000&to=1763683201001"
    before = PortState("ACTIVE", active=True, rate_bytes_per_second=5e10)
    event = Event(1_763_683_200_123_000_000, "link-down", "mlx5_0:1", EVENT["text"], 10**9, before, None, {"a": [1]})
    assert (found.values, found.left_out) == ((event,), 3)


@for_each(
    [
        {"time_ms": 2**63 // 10**6 + 1},
        {"before": state_of(rate_bytes_per_second=1e16)},
        {"kind": "started", "details": {"ports": {"mlx5_0:1": {"active": "yes"}}}},
    ]
)
def test_events_of_somebody_else_are_refused(changed: dict[str, Any]) -> None:
    with canned() as server:
        server.answer("/api/v1/events", events_of(changed))
        with pytest.raises(DaemonError, match=r"its answer is not as expected: events\.0"):
            ask_events(DaemonConnection(server.url))


def test_metrics_are_added_up_over_their_labels(server: Canned) -> None:
    text = b'# HELP a\n# TYPE a counter\na{x="1\x0c\xe2\x80\xa8"} 2\na{x="2"} 3.5\n\nb 4\nc NaN\nad 7\n'
    server.answer("/metrics", text)
    assert ask_metrics(DaemonConnection(server.url), ["a", "b", "c"]) == {"a": 5.5, "b": 4.0}
    assert server.asked[0][0] == "/metrics?name%5B%5D=a&name%5B%5D=b&name%5B%5D=c"
    server.answer("/metrics", b"a b c\n<html>\n")
    with pytest.raises(DaemonError, match="/metrics: its answer is not metrics"):
        ask_metrics(DaemonConnection(server.url), ["a"])


@pytest.mark.parametrize("prefix", ["", "/fabric"])
def test_the_address_of_a_gateway_is_refused_with_the_way_to_its_nodes_and_jobs(server: Canned, prefix: str) -> None:
    server.answer(f"{prefix}/api/v1/nodes", json.dumps({"nodes": [{"node": "moe"}, {"node": "dense"}]}).encode())
    address = f"{server.url}{prefix}"
    with pytest.raises(DaemonError) as refusal:
        ask_ports(DaemonConnection(address))
    assert str(refusal.value) == (
        f"{address} is a gateway, not a daemon; for a node use {address}/node/moe (it has moe, dense), "
        f"for a job `ibpulse fleet collect --url={address} --job=ID`"
    )
    server.answer(f"{prefix}/api/v1/nodes", b'{"nodes": []}')
    with pytest.raises(DaemonError, match="is a gateway, not a daemon, and it knows no node yet"):
        ask_ports(DaemonConnection(address))
