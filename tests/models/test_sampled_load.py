"""What samples show of a known load: the closed form, the exact integral, and sampled series agree."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.workbench.models.sampled_load import Span, on_off_statistics, schedule_statistics

TABLE = [
    (0.55, 7.27, 10, 0.1736, 1.0000, 0.1736),
    (0.55, 27.27, 10, 0.6435, 0.9167, 0.5443),
    (0.55, 181.8, 10, 0.8704, 0.6050, 0.2517),
    (0.50, 40, 10, 0.8165, 0.7500, 0.5000),
    (0.30, 315, 10, 1.4885, 0.3317, 0.2585),
    (0.30, 315, 100, 1.0760, 0.6175, 0.5765),
    (0.75, 315, 100, 0.3834, 1.0000, 0.3834),
    (0.90, 1444, 10, 0.3290, 0.9069, 0.0715),
]


def sampled(spans: list[Span], period: float, sample: float) -> tuple[float, float, float]:
    """Duty, CV of the active samples and CV of all, of 200,000 samples at random phases."""
    edges = np.array(sorted({0.0, period, *(time for begin, end, _ in spans for time in (begin, end))}))
    middles = (edges[1:] + edges[:-1]) / 2
    rates = np.array([sum(rate for begin, end, rate in spans if begin <= at < end) for at in middles])
    amounts = np.concatenate([[0.0], np.cumsum(np.diff(edges) * rates)])

    def amount(times: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        whole, rest = np.divmod(times, period)
        return np.asarray(whole * amounts[-1] + np.interp(rest, edges, amounts))

    phases = np.random.default_rng(11).uniform(0, period, 200_000)
    values = (amount(phases + sample) - amount(phases)) / sample
    active = values[values > 1e-9 * values.max()]
    return active.size / values.size, float(active.std() / active.mean()), float(values.std() / values.mean())


@pytest.mark.parametrize(("share", "period", "sample", "cv_all", "duty", "cv"), TABLE)
def test_the_closed_form_has_the_published_values(
    share: float, period: float, sample: float, cv_all: float, duty: float, cv: float
) -> None:
    found = on_off_statistics(period, share, 1.0, sample)
    assert (found.cv_all, found.duty, found.cv) == pytest.approx((cv_all, duty, cv), rel=5e-3)
    assert sampled([(0, share * period, 1.0)], period, sample) == pytest.approx((duty, cv, cv_all), abs=0.01)


@pytest.mark.parametrize(("share", "ratio"), [(0.3, 0.03), (0.9, 0.4), (0.5, 2.3)])
def test_the_closed_form_is_the_sum_over_harmonics(share: float, ratio: float) -> None:
    k = np.arange(1, 1_000_000)
    terms = 2 * (np.sin(np.pi * k * share) / (np.pi * k)) ** 2 * np.sinc(k * ratio) ** 2
    assert on_off_statistics(1.0, share, 1.0, ratio).cv_all == pytest.approx(terms.sum() ** 0.5 / share, rel=1e-5)


@given(st.floats(0.02, 1), st.floats(0.02, 5))
def test_the_closed_form_is_the_exact_integral(share: float, sample: float) -> None:
    closed = on_off_statistics(1.0, share, 3.0, sample)
    exact = schedule_statistics([(0.0, share, 3.0)], 1.0, sample)
    # the sum of squares loses half of its digits in the root
    assert astuple(closed) == pytest.approx(astuple(exact), rel=1e-4, abs=2e-4)


def test_any_schedule_has_the_statistics_of_its_samples() -> None:
    random = np.random.default_rng(2)
    edges = np.sort(random.uniform(0, 0.9, 24)).tolist()
    spans = [(edges[at], edges[at + 1], float(random.uniform(1, 5))) for at in range(0, 24, 2)]
    for sample in (0.01, 0.1, 1.7):
        found = schedule_statistics(spans, 1.0, sample)
        assert (found.duty, found.cv, found.cv_all) == pytest.approx(sampled(spans, 1.0, sample), abs=0.01)


@given(st.floats(0.05, 0.95), st.floats(0.01, 1), st.floats(1.1, 3))
def test_the_duty_cycle_never_falls_with_the_length_of_samples(share: float, sample: float, more: float) -> None:
    shorter, longer = (on_off_statistics(1.0, share, 1.0, length) for length in (sample, sample * more))
    assert shorter.duty <= longer.duty
    assert shorter.mean == longer.mean == share


def test_a_steady_load_has_no_spread() -> None:
    assert astuple(on_off_statistics(1.0, 1.0, 5.0, 0.1)) == pytest.approx((5.0, 5.0, 1.0, 0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize(("period", "share", "sample"), [(1, 0, 1), (1, 1.1, 1), (0, 0.5, 1), (1, 0.5, 0)])
def test_loads_that_cannot_be_are_refused(period: float, share: float, sample: float) -> None:
    with pytest.raises(ValueError, match="give a share above 0"):
        on_off_statistics(period, share, 1.0, sample)
    with pytest.raises(ValueError, match="without traffic"):
        schedule_statistics([], 1.0, 0.01)
