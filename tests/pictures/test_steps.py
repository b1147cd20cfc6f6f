"""The picture of predicted steps."""

from __future__ import annotations

import numpy as np
import pytest

from ibpulse.workbench.models.prediction import StepTimeline, schedule_statistics
from ibpulse.workbench.pictures.options import PictureOptions
from ibpulse.workbench.pictures.steps import PredictedPicture, draw_predicted_steps, sample_timeline

LINE = StepTimeline(1.0, ((0.1, 0.3, 5.0), (0.3, 0.4, 2.0), (0.7, 0.95, 4.0)))
OPTIONS = PictureOptions(width_pixels=1000, dpi=100)


def test_samples_are_means_over_intervals() -> None:
    edges = np.array([0.0, 0.05, 0.2, 0.35, 0.8, 1.15, 3.15])
    # by hand: bytes between the edges, divided by the time
    expected = [
        0.0,
        5 * 0.1 / 0.15,
        (5 * 0.1 + 2 * 0.05) / 0.15,
        (2 * 0.05 + 4 * 0.1) / 0.45,
        (4 * 0.15 + 5 * 0.05) / 0.35,
    ]
    expected.append(1.0 + 0.2 + 1.0)
    assert sample_timeline(LINE, edges).tolist() == pytest.approx(expected)


def test_many_samples_have_the_exact_statistics() -> None:
    values = sample_timeline(LINE, np.arange(20_001) * 0.0317)
    exact = schedule_statistics(LINE.spans, LINE.period, 0.0317)
    mean = sum((end - begin) * rate for begin, end, rate in LINE.spans) / LINE.period
    assert (values.mean(), values.max()) == pytest.approx((mean, exact.peak), rel=1e-2)
    active = values[values > 1e-9]
    assert active.std() / active.mean() == pytest.approx(exact.cv, abs=0.01)


def test_the_prediction_has_the_phase_of_the_measurement() -> None:
    measured = 2 * sample_timeline(LINE, 0.37 + np.arange(201) * 0.01)
    figure = draw_predicted_steps(PredictedPicture("job", (LINE,), measured, 0.01, "run"), OPTIONS)
    (axes,) = figure.axes
    predicted, drawn = axes.patches
    np.testing.assert_allclose(predicted.get_data().values, drawn.get_data().values, atol=0.6e-9)
    assert drawn.get_data().values.tolist() == pytest.approx((measured / 1e9).tolist())
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["predicted", "run"]


def test_undrawn_measurement_has_a_reason() -> None:
    missing = PredictedPicture("job", (LINE,), np.zeros(0), 0.01, "run", not_drawn="not drawn: no whole step in run")
    figure = draw_predicted_steps(missing, OPTIONS)
    assert any("not drawn: no whole step in run" in text.get_text() for text in figure.texts)


def test_several_readings_make_a_band() -> None:
    other = StepTimeline(1.0, ((0.0, 0.5, 3.0),))
    figure = draw_predicted_steps(PredictedPicture("job", (LINE, other), np.zeros(0), 0.01), OPTIONS)
    (band,) = figure.axes[0].patches
    edges = np.arange(201) * 0.01
    rows = 2e-9 * np.stack([sample_timeline(line, edges) for line in (LINE, other)])
    data = band.get_data()
    np.testing.assert_allclose(data.values, rows.max(axis=0))
    np.testing.assert_allclose(data.baseline, rows.min(axis=0))
