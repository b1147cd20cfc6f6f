"""The signs of simulated ports against the truth."""

from __future__ import annotations

import pytest

from tests.congestion.drivers import Observation, observe
from tests.congestion.network import PORTS
from tests.congestion.readings import LABELS, UNKNOWN, label
from tests.congestion.scenarios import draw
from tests.congestion.scoring import score


@pytest.fixture(scope="module")
def observations() -> list[Observation]:
    return observe([draw(seed, 1.0) for seed in range(60)])


def test_signs_of_a_few_networks_are_the_truth(observations: list[Observation]) -> None:
    found = score(observations, live=True)
    assert found.right() > 0.9
    assert found.unknown() < 0.3
    assert found.blamed == 0


def test_ports_that_are_read_seldom_show_their_link_at_most(observations: list[Observation]) -> None:
    seldom = [seen for seen in observations if seen.scenario.family == "bnxt_re"]
    found = {LABELS[sign] for seen in seldom for port in range(PORTS) for sign in label(seen, port)}
    assert UNKNOWN in found
    assert found <= {UNKNOWN, "link"}
    assert not any(seen.live().any() for seen in seldom)
