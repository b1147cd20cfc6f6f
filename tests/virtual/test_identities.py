"""A series belongs to a name and a device: two devices that swap names are never mixed, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ibpulse.workbench.simulate.workloads import Constant
from tests.virtual.node import Node
from tests.virtual.rates import RATE, WORD_RATE

GUIDS = {f"mlx5_{index}": f"b8ce:f603:000{index}:bb00" for index in range(3)}
# until the next scan and a few seconds of samples after it
SCAN_AND_MORE = 8.0
# each card has its own rate, and after ten seconds the counters are far apart
RATES = {"mlx5_0": RATE, "mlx5_1": RATE / 2, "mlx5_2": RATE / 4}
CARDS = tuple(RATES)


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    with Node(folder, "--ports.exclude=away", rails=3, workload=Constant(RATE)) as node:
        yield node


def begin(node: Node) -> None:
    node.fault({"slow-rail": {"mlx5_1": 0.5, "mlx5_2": 0.25}})
    # a difference between two cards would be links that flapped
    node.put("mlx5_1", "link_downed", "7")
    # a second and a half after a scan
    node.run(11.5)


def swap(node: Node) -> None:
    for old, new in (("mlx5_0", "away"), ("mlx5_1", "mlx5_0"), ("away", "mlx5_1")):
        node.rename(old, new)


def set_guids(node: Node, guid: str) -> None:
    for device in CARDS:
        (node.tree / "class/infiniband" / device / "node_guid").write_text(f"{guid}\n")


def run_and_scrape(node: Node) -> None:
    """Run, and see at each look that no total grows by more than the fastest card has moved since the last look."""
    seconds, last = 0.5, dict.fromkeys(CARDS, 0.0)
    for look in range(round(SCAN_AND_MORE / seconds)):
        metrics = node.metrics()
        # absent before the first sample of a card
        totals = {
            device: sum(metrics.find("ibpulse_port_transmit_bytes_total", device=device).values()) for device in CARDS
        }
        grown = [totals[device] - last[device] for device in CARDS if look]
        # totals advance by whole seconds, and once by two
        assert all(each <= 2 * RATE for each in grown), grown
        last = totals
        node.run(seconds)


def assert_cards(node: Node, cards: Sequence[str], resets: Sequence[int]) -> None:
    """The devices `mlx5_0` and so on are these cards, and nothing mixes one card with another."""
    window, metrics = node.window("8s", direction="transmit"), node.metrics()
    for device, card, count in zip(CARDS, cards, resets, strict=False):
        values = window[f"{device}:1 transmit"]
        assert all(value is None or abs(value - RATES[card]) <= WORD_RATE for value in values), device
        assert None not in values[-100:], device
        assert metrics.port("resets_total", device) == count, device
        # since the last change of its name, as from the beginning
        moved, seconds = (metrics.port(f"{name}_total", device) for name in ("transmit_bytes", "observed_seconds"))
        assert moved == pytest.approx(RATES[card] * seconds, rel=0.02), device


def texts(node: Node) -> list[str]:
    return [event.text for event in node.events("replaced")]


def test_devices_that_swap_names_show_their_own_rates(node: Node) -> None:
    begin(node)
    swap(node)
    run_and_scrape(node)
    assert_cards(node, ("mlx5_1", "mlx5_0", "mlx5_2"), (1, 1, 0))
    assert texts(node) == [
        f"mlx5_0 is another device now: GUID {GUIDS['mlx5_1']} instead of {GUIDS['mlx5_0']}",
        f"mlx5_1 is another device now: GUID {GUIDS['mlx5_0']} instead of {GUIDS['mlx5_1']}",
    ]
    event = node.events("replaced")[0]
    assert event.details == {"guid": GUIDS["mlx5_1"], "guid_before": GUIDS["mlx5_0"]}
    # between the last scan before and this one
    assert 0 < event.uncertainty_ns <= 6e9
    assert node.events("counter-reset", "appeared", "disappeared", "link-flap") == []
    swap(node)
    run_and_scrape(node)
    assert_cards(node, ("mlx5_0", "mlx5_1", "mlx5_2"), (2, 2, 0))
    assert len(texts(node)) == 4


def test_a_sampler_that_restarts_after_a_swap_mixes_nothing(node: Node) -> None:
    begin(node)
    swap(node)
    node.samplers.kill()
    run_and_scrape(node)
    assert_cards(node, ("mlx5_1", "mlx5_0", "mlx5_2"), (1, 1, 0))


def test_a_swap_while_no_daemon_runs_is_noticed(node: Node) -> None:
    begin(node)
    node.stop()
    swap(node)
    node.start()
    node.run(SCAN_AND_MORE)
    assert_cards(node, ("mlx5_1", "mlx5_0", "mlx5_2"), (0, 0, 0))
    assert len(texts(node)) == 2


def test_a_card_that_replaces_another_begins_at_0(node: Node) -> None:
    begin(node)
    node.rename("mlx5_0", "away")
    node.rename("mlx5_2", "mlx5_0")
    run_and_scrape(node)
    assert_cards(node, ("mlx5_2", "mlx5_1"), (1, 0))
    assert texts(node) == [f"mlx5_0 is another device now: GUID {GUIDS['mlx5_2']} instead of {GUIDS['mlx5_0']}"]


@pytest.mark.parametrize("guid", ["0000:0000:0000:0000", "b8ce:f603:0009:bb00"], ids=["without", "same"])
def test_functions_without_a_guid_of_their_own_are_told_apart(node: Node, guid: str) -> None:
    set_guids(node, guid)
    begin(node)
    places = [(node.tree / "class/infiniband" / device / "device").resolve().name for device in CARDS]
    swap(node)
    run_and_scrape(node)
    assert_cards(node, ("mlx5_1", "mlx5_0", "mlx5_2"), (1, 1, 0))
    assert texts(node) == [
        f"mlx5_0 is another device now: at {places[1]} instead of {places[0]}",
        f"mlx5_1 is another device now: at {places[0]} instead of {places[1]}",
    ]
