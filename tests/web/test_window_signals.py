"""Signals of a window: what counters gained at each reading, and which are full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ibpulse.core.answers.members import read_members
from ibpulse.core.answers.samples import WindowAnswer
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import MISSING
from tests.ring.writing import put_signals
from tests.web.conftest import make_client
from tests.web.rings import EPOCH, INTERVAL_NS, Node, make_node

ROCE = (Signal("np_ecn_marked_roce_packets_received", 64), Signal("port_transmit_wait", 32, stops=True))
READ = EPOCH + 5


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """100 samples of two ports, of which the first is read every ten ticks and gains 7 marks each time."""
    made = make_node(tmp_path, readings=50)
    made.run(EPOCH, 100)
    made.now_tick = EPOCH + 99
    made.ring.assign_signals(0, ROCE, 1)
    waits = [10, 20, int(MISSING), 40, 2**32 - 1, 2**32 - 1, 0, 5, 6, 7]
    for number, wait in enumerate(waits):
        at_ns = number * 101_000_000
        put_signals(made.ring, 0, READ + 10 * number, (7 * number, wait), (at_ns, at_ns, at_ns))
    return made


async def get(node: Node, status: int = 200, **query: object) -> Any:
    span = {"from": (EPOCH + 10) * INTERVAL_NS // 10**6, "to": (EPOCH + 90) * INTERVAL_NS // 10**6}
    async with make_client(node.parts()) as client:
        response = await client.get("/api/v1/window", params={**span, **query})
    assert response.status_code == status, response.text
    return response.json()


async def test_a_window_has_what_counters_gained(node: Node) -> None:
    answer = await get(node, signals="true")
    (port,) = answer["signals"]
    assert port["port"] == "mlx5_0:1"
    assert port["time_ms"] == [(READ + 10 * number) * INTERVAL_NS // 10**6 for number in range(1, 9)]
    assert port["seconds"] == [0.101] * 8
    marks, waits = port["series"]
    assert (marks["sign"], marks["of_peers"], waits["sign"], waits["unit"]) == ("marked", True, "waiting", "ticks")
    # the reading before the window says what the first one gained
    assert marks["gained"] == [7] * 8
    assert waits["gained"] == [10, None, None, None, None, None, 5, 1]
    assert waits["full"] == [False, False, False, True, True, False, False, False]


async def test_only_the_chosen_ports_have_them_if_asked_for(node: Node) -> None:
    assert "signals" not in await get(node)
    assert (await get(node, signals="true", port="mlx5_1"))["signals"] == []
    problem = await get(node, 422, signals="true", format="csv")
    assert "signals are only in format=json" in str(problem)


async def test_a_client_reads_the_answer(node: Node) -> None:
    async with make_client(node.parts()) as client:
        response = await client.get("/api/v1/window", params={"last": "1s", "signals": "true"})
    answer = read_members(WindowAnswer, response.content)
    assert answer.signals is not None
    assert answer.signals[0].series[0].name == ROCE[0].name
