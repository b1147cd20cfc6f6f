from dataclasses import replace

import numpy as np
import pytest

from ibpulse.base.errors import PictureError
from ibpulse.workbench.pictures.picture_run import choose_scale, round_up
from tests.pictures.runs import STILL, take


def test_two_runs_share_the_scale_of_the_larger() -> None:
    scale = choose_scale([take(np.full((2, 5), 3e9)), take(np.full((2, 5), 41e9))], STILL)
    assert (scale.port, scale.node, scale.exceeded) == (50.0, 100.0, "")


def test_the_scale_ends_at_the_line_rate() -> None:
    rates = np.full((2, 5), 81e9)
    scale = choose_scale([take(rates, line=97e9)], STILL)
    assert (scale.port, scale.node, scale.exceeded) == (97.0, 200.0, "")
    rates[0, 3] = 97.2e9
    # as exact as a rate is
    assert choose_scale([take(rates, line=97e9)], STILL).exceeded == ""
    rates[0, 3] = 98e9
    scale = choose_scale([take(rates, line=97e9)], STILL)
    assert (scale.port, scale.exceeded) == (97.0, "▲ above the line rate: up to 98 GB/s")
    assert choose_scale([take(rates, line=float("nan"))], STILL).port == 100.0


def test_utilisation_is_of_the_line_rate_in_force() -> None:
    run = take(np.full((2, 4), 10e9), line=100e9)
    run.lines[0, 2:] = 20e9
    run.node.lines[2:] = 120e9
    scale = choose_scale([run], replace(STILL, unit="utilization"))
    np.testing.assert_allclose(scale.of_ports(run), [[10, 10, 50, 50], [10] * 4])
    np.testing.assert_allclose(scale.of_node(run), [10, 10, 100 / 6, 100 / 6])


def test_a_utilisation_is_of_the_line_rate_and_goes_to_a_hundred_percent() -> None:
    options = replace(STILL, unit="utilization")
    run = take(np.full((2, 5), 25e9))
    scale = choose_scale([run], options)
    assert (scale.port, scale.node, scale.sign) == (100.0, 100.0, "%")
    assert (scale.of_ports(run) == 25.0).all()
    assert (scale.of_node(run) == 25.0).all()


def test_a_utilisation_without_a_line_rate_is_refused() -> None:
    run = take(np.ones((1, 5)), line=float("nan"))
    with pytest.raises(PictureError, match=r"recording a has no line rate for mlx5_0:1; use --unit=GB/s"):
        choose_scale([run], replace(STILL, unit="utilization"))


@pytest.mark.parametrize(("value", "rounded"), [(0, 1), (96, 100), (100, 100), (101, 120), (0.031, 0.04), (656, 700)])
def test_a_scale_ends_at_a_round_number(value: float, rounded: float) -> None:
    assert round_up(value) == pytest.approx(rounded)


def test_a_run_of_holes_alone_has_a_scale() -> None:
    assert choose_scale([take(np.full((1, 5), np.nan))], STILL).port == 1.0
