"""Windows of the past use the line rates of the past, and ports that disappeared keep theirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.model import PortState
from tests.web.conftest import make_client
from tests.web.rings import EPOCH, RATE, Node, fabric, full_node, state_of

UP = PortState("ACTIVE", "LinkUp", True, RATE, True)
DOWN = replace(UP, state="DOWN", physical="Polling", active=False)
NAME = "mlx5_0:1"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return full_node(tmp_path)


def log_with(*changes: tuple[int, PortState | None, PortState | None]) -> EventLog:
    """A log in which the port changes its state at these ticks."""
    log = EventLog()
    for name in ("mlx5_0:1", "mlx5_1:1"):
        log.history.begin(name, UP)
    for tick, before, after in changes:
        log.add(Event(tick * 10_000_000, "link-down", NAME, "", before=before, after=after, tick=tick))
    return log


async def ask(node: Node, log: EventLog, now: PortState | None = UP, **query: Any) -> dict[str, Any]:
    """The window of 400 ticks before the newest, as after the changes of the log."""

    def known() -> tuple[KnownPort, ...]:
        ports = fabric(node.slots).ports
        first = replace(ports[0], active=bool(now and now.active), rate_bytes_per_second=None)
        return (KnownPort(first, now), *(KnownPort(port, state_of(port)) for port in ports[1:]))

    begin, end = (EPOCH + 100) * 10, (EPOCH + 500) * 10
    async with make_client(node.parts(events=log, known_ports=known)) as client:
        answer = await client.get("/api/v1/window", params={"from": begin, "to": end, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def values_of(window: dict[str, Any], name: str = NAME) -> np.ndarray:
    """The values of the first direction of a port, NaN where data is missing."""
    found = next(each["values"] for each in window["series"] if each["port"] == name)
    return np.array(found, dtype=np.float64)


async def test_a_link_that_went_down_keeps_its_past_in_every_unit(node: Node) -> None:
    log = log_with((EPOCH + 300, UP, DOWN))
    rates, ratios = [values_of(await ask(node, log, DOWN, unit=unit)) for unit in ("bytes_per_second", "ratio")]
    assert np.nanmax(rates[200:]) > 0
    assert ratios == pytest.approx(rates / RATE, rel=1e-6, nan_ok=True)


async def test_utilisation_uses_the_line_rate_in_force_at_each_sample(node: Node) -> None:
    slower = replace(UP, rate_bytes_per_second=RATE / 4)
    log = log_with((EPOCH + 250, UP, slower))
    rates, ratios = [values_of(await ask(node, log, slower, unit=unit)) for unit in ("bytes_per_second", "ratio")]
    # the first value is that of tick 100
    line = np.where(np.arange(100, 500) < 250, RATE, RATE / 4)
    assert ratios == pytest.approx(rates / line, rel=1e-6, nan_ok=True)


async def test_a_bin_with_two_line_rates_has_the_highest_utilisation_not_the_highest_rate(node: Node) -> None:
    slower = replace(UP, rate_bytes_per_second=RATE / 4)
    log = log_with((EPOCH + 250, UP, slower))
    single = values_of(await ask(node, log, slower, unit="ratio", direction="receive"))
    bins = values_of(await ask(node, log, slower, unit="ratio", direction="receive", resolution="1s"))
    assert bins == pytest.approx(np.nanmax(single.reshape(4, 100), axis=1))
    assert bins[1] == pytest.approx(4 * bins[0], rel=0.2)


@pytest.mark.parametrize("after", [DOWN, replace(UP, rate_bytes_per_second=RATE / 2), None])
async def test_a_window_of_the_past_is_the_same_before_and_after_an_incident(
    node: Node, after: PortState | None
) -> None:
    calm = await ask(node, log_with(), UP, unit="ratio")
    assert await ask(node, log_with((EPOCH + 700, UP, after)), after, unit="ratio") == calm


async def test_a_port_that_disappeared_keeps_its_samples(node: Node) -> None:
    found = await ask(node, log_with((EPOCH + 300, UP, None)), None)
    assert np.nanmax(values_of(found)[:200]) > 0


async def test_the_list_of_ports_says_what_became_of_them(node: Node) -> None:
    ports = fabric([*node.slots, "mlx5_2:1", "mlx5_3:1"]).ports
    since_ns = (EPOCH + 5) * 10_000_000
    known = (
        KnownPort(ports[0], None, since_ns, "it disappeared"),
        KnownPort(ports[1], replace(UP, problem="unreadable"), since_ns, "its byte counters cannot be read"),
        KnownPort(ports[2], replace(UP, problem="hung"), None, "a read of its device does not return"),
        KnownPort(replace(ports[3], state="DOWN", active=False), DOWN, since_ns),
        KnownPort(ports[4], replace(DOWN, problem="no-counters"), None, "no file counts its bytes"),
    )
    async with make_client(node.parts(known_ports=lambda: known)) as client:
        found = (await client.get("/api/v1/ports")).json()["ports"]
    assert [(each["name"], each["state"], each["active"]) for each in found] == [
        ("mlx5_0:1", "disappeared", False),
        ("mlx5_1:1", "unreadable", True),
        ("mlx5_2:1", "hung", True),
        ("mlx5_3:1", "DOWN", False),
        ("mlx5_9:1", "DOWN", False),
    ]
    assert [each["since"] for each in found] == [
        *["2025-11-21T00:00:00.050Z"] * 2,
        None,
        "2025-11-21T00:00:00.050Z",
        None,
    ]
    assert found[0]["problem"] == "it disappeared"
