"""Samples as tables, pictures and reports: nothing is lost or invented on the way."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ibpulse
from ibpulse.core.recordings import load, save
from ibpulse.workbench.python.samples import to_ns
from tests.api.places import Places
from tests.reports.recordings import DOWN, START_NS, UP, change, record, wave


@pytest.fixture
def gappy(tmp_path: Path) -> ibpulse.SampledRates:
    """Two ports, the second with a missing sample, and a link that goes down."""
    rates = wave(10e9, 3, 1, 10, ports=2)
    rates[1, :, 5] = np.nan
    path = tmp_path / "gappy.parquet"
    save(path, record(rates, events=(change(0.2, UP, DOWN),)))
    found = ibpulse.read(str(path))
    assert isinstance(found, ibpulse.SampledRates)
    return found


def test_tables_hold_the_rates_at_their_times_and_missing_samples(gappy: ibpulse.SampledRates) -> None:
    wide = gappy.to_pandas(wide=True)
    assert np.isnan(wide["mlx5_1:1", "transmit"].iloc[5])
    assert wide.isna().to_numpy().sum() == 2
    assert gappy.to_arrow().column("transmit_bytes_per_second").null_count == 1
    assert gappy.to_pandas()["receive_bytes_per_second"].isna().sum() == 1
    tidy = gappy.to_pandas()
    part = tidy[(tidy["device"] == "mlx5_0") & (tidy["port"] == 1)].set_index("time")["transmit_bytes_per_second"]
    wide = gappy.to_pandas(wide=True)["mlx5_0:1", "transmit"]
    assert part.tolist() == wide.tolist() == gappy.bytes_per_second[0, 0].tolist()
    assert (part.index == wide.index).all()
    assert wide.index[0] == pd.Timestamp(START_NS + 10_000_000, tz="UTC")


def test_parts_have_their_samples_and_events_and_are_saved_as_recordings(
    gappy: ibpulse.SampledRates, tmp_path: Path
) -> None:
    part = gappy.between("100ms", "300ms")
    assert len(part) == 20
    assert np.array_equal(part.bytes_per_second, gappy.bytes_per_second[:, :, 10:30], equal_nan=True)
    assert [event.kind for event in part.events] == ["link-down"]
    assert len(gappy.between(last="100ms").events) == 0
    begin = datetime.fromtimestamp(START_NS / 1e9, UTC)
    assert len(gappy.between(begin, "150ms")) == 15
    path = tmp_path / "part.parquet"
    gappy.select("mlx5_1").save(path)
    assert np.array_equal(load(path).bytes_per_second, gappy.bytes_per_second[1:], equal_nan=True)
    with pytest.raises(ibpulse.IbpulseError, match="exists; set force=True to replace it"):
        gappy.save(path)
    gappy.save(path, force=True)
    assert len(load(path).meta.ports) == 2


def test_the_report_is_that_of_the_command(gappy: ibpulse.SampledRates) -> None:
    report = gappy.report(gappy.between(last="200ms"), resamples=100)
    assert report.value("duty_cycle_ratio") == pytest.approx(0.75, abs=0.01)
    frame = report.to_pandas()
    assert frame.loc["peak_bytes_per_second", "gappy (1)"] == 40e9
    assert "duty cycle" in str(report)
    assert report.to_json().startswith("{")


def test_picture_is_saved_or_refused_with_reason(gappy: ibpulse.SampledRates, tmp_path: Path) -> None:
    picture = gappy.plot(theme="dark")
    assert picture._repr_png_().startswith(b"\x89PNG")
    picture.save(tmp_path / "a.svg")
    assert "mlx5_1:1" in (tmp_path / "a.svg").read_text()
    with pytest.raises(ibpulse.IbpulseError, match="set force=True"):
        picture.save(tmp_path / "a.svg")
    with pytest.raises(ibpulse.IbpulseError, match=r"use \.png or \.svg"):
        picture.save(str(tmp_path / "a.gif"))


def test_dataset_plot_has_one_row_per_node(places: Places, tmp_path: Path) -> None:
    dataset = ibpulse.read(places.dataset)
    assert isinstance(dataset, ibpulse.Dataset)
    pd.DataFrame({"a": [1]}).to_parquet(places.dataset / "sums.parquet")
    again = ibpulse.Dataset(str(places.dataset))
    assert list(again) == list(dataset) == ["node=gpu-1/run", "node=gpu-2/run"]
    dataset.plot().save(tmp_path / "nodes.svg")
    text = (tmp_path / "nodes.svg").read_text()
    assert "node=gpu-2/run" in text
    assert "per node" in text
    assert dataset.report(resamples=100).names[1].endswith("node=gpu-2/run")
    assert dataset.to_pandas(wide=True).columns.names == ["recording", "port", "direction"]


@pytest.mark.parametrize(
    ("time", "words"), [(datetime(2026, 1, 1), "has no time zone"), ("soon", "is not a time"), (5, "is not a time")]
)
def test_a_time_that_says_nothing_is_refused(time: datetime | str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        to_ns(time)


def test_times_keep_their_nanoseconds() -> None:
    assert to_ns(pd.Timestamp(1_763_683_200_123_456_789, tz="UTC")) == 1_763_683_200_123_456_789
    assert to_ns("2025-11-21T00:00:00.5Z") == START_NS + 500_000_000
