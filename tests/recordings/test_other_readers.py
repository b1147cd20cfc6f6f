"""A recording is a plain Parquet file for pandas, polars and DuckDB, times, holes and metadata included."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from ibpulse.core.recordings import Recording, save
from tests.recordings.recordings import START_NS, make_recording


@pytest.fixture
def recording() -> Recording:
    return make_recording(1000, ports=3, reason="rail-lost", labels={"alertname": "RailLost"}, trigger_ns=START_NS)


@pytest.fixture
def path(tmp_path: Path, recording: Recording) -> Path:
    save(tmp_path / "a.parquet", recording)
    return tmp_path / "a.parquet"


def test_pandas_reads_times_ports_and_holes(path: Path, recording: Recording) -> None:
    frame = pd.read_parquet(path)
    assert str(frame.dtypes["time"]) == "datetime64[ns, UTC]"
    second = frame[(frame["device"] == "mlx5_1") & (frame["port"] == 1)]
    assert second["time"].astype("int64").tolist() == recording.time_ns().tolist()
    np.testing.assert_array_equal(second["receive_bytes_per_second"], recording.bytes_per_second[1, 1])
    np.testing.assert_array_equal(second["transmit_seconds"].fillna(0), recording.seconds[1, 0])
    assert frame["transmit_bytes_per_second"].isna().sum() == np.isnan(recording.bytes_per_second[:, 0]).sum() > 0


def test_polars_reads_times_ports_and_holes(path: Path, recording: Recording) -> None:
    frame = pl.scan_parquet(path).filter(pl.col("device") == "mlx5_2").collect()
    assert frame.schema["time"] == pl.Datetime("ns", "UTC")
    assert frame["time"].to_physical().to_list() == recording.time_ns().tolist()
    assert frame["transmit_bytes_per_second"].null_count() == np.isnan(recording.bytes_per_second[2, 0]).sum() > 0
    np.testing.assert_array_equal(frame["receive_seconds"].fill_null(0).to_numpy(), recording.seconds[2, 1])


def test_duckdb_reads_times_ports_holes_and_metadata(path: Path, recording: Recording) -> None:
    with duckdb.connect() as database:
        found = database.execute(
            f"SELECT device, epoch_ns(min(time)), count(*), max(transmit_bytes_per_second), "
            f"count(*) - count(receive_seconds) FROM '{path}' GROUP BY device ORDER BY device"
        ).fetchall()
        about = database.execute(
            f"SELECT decode(value) FROM parquet_kv_metadata('{path}') WHERE key = 'ibpulse_recording'"
        ).fetchall()
    rates = recording.bytes_per_second
    assert found == [
        (f"mlx5_{row}", START_NS, 1000, np.nanmax(rates[row, 0]), np.isnan(rates[row, 1]).sum()) for row in range(3)
    ]
    members = json.loads(about[0][0])
    assert members["ibpulse_recording_version"] == 1
    assert (members["host"], members["reason"], members["labels"]) == ("node7", "rail-lost", {"alertname": "RailLost"})
    assert [port["device"] for port in members["ports"]] == ["mlx5_0", "mlx5_1", "mlx5_2"]
