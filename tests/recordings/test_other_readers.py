"""Recordings for pandas, polars, DuckDB and Perfetto: times, holes and metadata included."""

from __future__ import annotations

import json
import math
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from ibpulse.core.events import Event
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob
from ibpulse.core.model import PortId
from ibpulse.core.recordings import Recording, save
from ibpulse.core.recordings.perfetto import TracedNode, write_trace
from tests.perfetto_reader import Track, read_trace
from tests.recordings.recordings import INTERVAL_NS, START_NS, make_meta, make_recording


@pytest.fixture
def recording() -> Recording:
    return make_recording(1000, ports=3, reason="rail-lost", labels={"alertname": "RailLost"}, trigger_ns=START_NS)


@pytest.fixture
def path(tmp_path: Path, recording: Recording) -> Path:
    save(tmp_path / "a.parquet", recording)
    return tmp_path / "a.parquet"


def test_pandas_and_polars_read_times_ports_and_holes(path: Path, recording: Recording) -> None:
    frame = pd.read_parquet(path)
    assert str(frame.dtypes["time"]) == "datetime64[ns, UTC]"
    second = frame[(frame["device"] == "mlx5_1") & (frame["port"] == 1)]
    assert second["time"].astype("int64").tolist() == recording.time_ns().tolist()
    np.testing.assert_array_equal(second["receive_bytes_per_second"], recording.bytes_per_second[1, 1])
    np.testing.assert_array_equal(second["transmit_seconds"].fillna(0), recording.seconds[1, 0])
    assert frame["transmit_bytes_per_second"].isna().sum() == np.isnan(recording.bytes_per_second[:, 0]).sum() > 0
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


Tracks = dict[tuple[str, ...], Track]


def traced(recording: Recording, piece: int = 7, **about: object) -> Tracks:
    """The tracks of a recording that is written in pieces."""
    pieces = (recording.cut(first, first + piece) for first in range(0, recording.ticks, piece))
    return read_trace(b"".join(write_trace([TracedNode(recording.meta, pieces, **about)])))  # type: ignore[arg-type]


def values(track: Track, recording: Recording) -> np.ndarray:
    """The samples of a track in bytes per second, NaN where it has none or says that there is none."""
    found = np.full(recording.ticks, np.nan)
    for time_ns, value in track.samples:
        place, rest = divmod(time_ns - recording.start_ns + INTERVAL_NS, INTERVAL_NS)
        assert not rest
        if not math.isnan(value):
            found[place] = value * 1e9
    return found


# where the first sample begins
BEGIN_NS = START_NS - INTERVAL_NS


def spans(track: Track) -> list[tuple[int, int]]:
    """The first sample and the end of each slice."""
    return [((first - BEGIN_NS) // INTERVAL_NS, (end - BEGIN_NS) // INTERVAL_NS) for _, first, end in track.slices]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_every_sample_is_there_to_the_byte(piece: int) -> None:
    recording = make_recording(500, ports=3)
    tracks = traced(recording, piece)
    for row, port in enumerate(recording.meta.ports):
        for way, direction in enumerate(("transmit", "receive")):
            track = tracks["node7", str(port.id), f"{port.id} {direction}"]
            expected = recording.bytes_per_second[row, way]
            known = [value for _, value in track.samples if not math.isnan(value)]
            assert len(known) == np.count_nonzero(~np.isnan(expected))
            np.testing.assert_allclose(values(track, recording), expected, rtol=0, atol=1)
            assert track.unit == "GB/s"


def test_missing_samples_have_no_value_and_no_sum() -> None:
    """A value would be drawn up to the next one, so each run of missing samples begins with NaN, as does the end."""
    rates = np.full((1, 2, 10), 1e9)
    rates[0, 0, [0, 4, 5]] = np.nan
    seconds = np.where(np.isnan(rates), 0.0, 0.01)
    tracks = traced(Recording(make_meta(1), START_NS, rates, seconds), 3)
    samples = tracks["node7", "mlx5_0:1", "mlx5_0:1 transmit"].samples
    assert [(time - BEGIN_NS) // INTERVAL_NS for time, value in samples if math.isnan(value)] == [4, 10]
    rail = tracks["node7", "mlx5_0:1"]
    assert spans(rail) == [(0, 1), (4, 6)]
    assert {name for name, _, _ in rail.slices} == {"missing data"}
    rates = np.full((2, 2, 4), 1e9)
    rates[1, 1, 2] = np.nan
    tracks = traced(Recording(make_meta(2), START_NS, rates, np.where(np.isnan(rates), 0.0, 0.01)))
    sums = [[value for _, value in tracks["node7", f"all rails, {way}"].samples] for way in ("transmit", "receive")]
    assert sums[0][:4] == [2.0] * 4
    assert [math.isnan(value) for value in sums[1]] == [False, False, True, False, True]


def steady(steps: int = 8, stall: int = 0) -> Recording:
    """Steps of 400 ms, 250 ms of them active, in which a sample is missing; one silence may be longer."""
    shape = [2e9] * 25 + [0.0] * 15
    both = np.array([*([0.0] * 15), *(shape * steps), *([0.0] * stall), *(shape * steps)])
    rates = np.stack([both, both])[np.newaxis].repeat(2, axis=0)
    rates[:, :, 30] = np.nan
    return Recording(make_meta(2), START_NS, rates, np.where(np.isnan(rates), 0.0, 0.01))


def test_steps_bursts_and_stalls_are_slices() -> None:
    tracks = traced(steady())
    assert spans(tracks["node7", "bursts"]) == [(15 + 40 * number, 40 + 40 * number) for number in range(16)]
    # of 25 samples at 8 GB/s, one is missing in the first burst
    assert [each["GB"] for each in tracks["node7", "bursts"].details] == pytest.approx([1.92] + [2.0] * 15)
    steps = tracks["node7", "steps"].slices
    assert [name for name, _, _ in steps] == [f"step {number}" for number in range(14)]
    # a step follows a silence between traffic
    for number, (_, first, end) in enumerate(steps, 1):
        assert first == pytest.approx(BEGIN_NS + (15 + 40 * number) * INTERVAL_NS, abs=INTERVAL_NS)
        assert end - first == pytest.approx(40 * INTERVAL_NS, abs=INTERVAL_NS)
    assert ("node7", "stalls") not in tracks
    assert spans(traced(steady(stall=200))["node7", "stalls"]) == [(40 * 8, 15 + 40 * 8 + 200)]


def test_jobs_and_events_have_tracks() -> None:
    second = 10**9
    job = JobRecord(
        PlacedJob(Claim("4711", "slurm", "file"), (PortId("mlx5_0", 1),), "gpus"), START_NS + second, 0, None
    )
    events = (
        Event(START_NS + second, "capture", "", "a capture"),
        Event(START_NS + 2 * second, "link-flap", "mlx5_1:1", "flapped", 5_000_000),
        Event(START_NS + 99 * second, "capture", "", "after the samples"),
    )
    held = JobRecord(job.job, job.began_ns, 0, None, 0, (Holding(job.job.ports),))
    recording = make_recording(400, events=events, jobs=(held,))
    tracks = traced(recording)
    assert tracks["node7", "job 4711"].slices == [("job 4711", START_NS + second, recording.end_ns - INTERVAL_NS)]
    assert tracks["node7", "events"].instants == [("capture", START_NS + second)]
    assert ("link-flap", START_NS + 2 * second) in tracks["node7", "mlx5_1:1"].instants
    assert {"subject": "mlx5_1:1", "text": "flapped", "uncertainty_ms": 5.0} in tracks["node7", "mlx5_1:1"].details


def test_nodes_are_processes_on_one_clock() -> None:
    one, other = make_recording(50), make_recording(50, host="node8")
    nodes = [TracedNode(one.meta, [one]), TracedNode(other.meta, [other], ["mlx5_1"], 3_000_000, ("corrected",))]
    tracks = read_trace(b"".join(write_trace(nodes)))
    assert ("node8", "mlx5_0:1") not in tracks
    samples = [tracks[node, "mlx5_1:1", "mlx5_1:1 transmit"].samples for node in ("node7", "node8")]
    assert {before[0] - after[0] for before, after in zip(*samples, strict=True)} == {3_000_000}
