"""The comparison of signs with the truth, with labels whose errors are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.congestion.drivers import Observation, observe
from tests.congestion.network import PORTS, Limit
from tests.congestion.readings import LABELS, UNKNOWN, label
from tests.congestion.scenarios import draw
from tests.congestion.scoring import EXPECTED, score


@pytest.fixture(scope="module")
def observations() -> list[Observation]:
    return observe([draw(seed, 1.0) for seed in range(60)])


def truly(seen: Observation, port: int) -> Any:
    return np.array([LABELS.index(EXPECTED.get(limit, UNKNOWN)) for limit in seen.truth()[port]])


def test_labels_that_are_the_truth_score_one(observations: list[Observation]) -> None:
    found = score(observations, truly)
    assert (found.right(), found.unknown(), found.blamed) == (1, 0, 0)
    assert found.counts[Limit.IDLE].sum() == 0
    assert found.only_source > 100


def test_wrong_and_missing_labels_are_counted(observations: list[Observation]) -> None:
    path, unknown = LABELS.index("path"), LABELS.index(UNKNOWN)
    blaming = score(observations, lambda seen, port: np.full_like(truly(seen, port), path))
    assert blaming.blamed == blaming.only_source
    expected = blaming.counts[[Limit.UPLINK, Limit.EGRESS]].sum()
    assert blaming.right() == pytest.approx(expected / blaming.counts.sum())
    assert score(observations, lambda seen, port: np.full_like(truly(seen, port), unknown)).unknown() == 1
    live = score(observations, truly, live=True)
    assert 0 < live.counts.sum() < blaming.counts.sum()


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
