"""Traces for Perfetto of files and of datasets, by the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ibpulse.cli import main
from ibpulse.core.recordings import Recording, load, save
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.workbench.fleet.dataset import RAW, DatasetStore
from tests.datasets.fleets import dataset, plan
from tests.perfetto_reader import Track, read_trace
from tests.recordings.recordings import INTERVAL_NS, make_recording
from tests.recordings.test_other_readers import values

Tracks = dict[tuple[str, ...], Track]


def render(folder: Path, *words: str) -> Tracks:
    assert main(["render", *words, "-o", str(folder / "a.perfetto"), "--force"], {}) == 0
    return read_trace((folder / "a.perfetto").read_bytes())


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    made = make_recording(700, ports=3)
    save(tmp_path / "a.parquet", made)
    return made


def test_a_part_of_a_file_is_traced(tmp_path: Path, recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "a.parquet")
    tracks = render(tmp_path, file, "--from=2s", "--to=5s", "--port=mlx5_1")
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'a.perfetto'}: trace of 1 node, ")
    assert [path[1] for path in tracks if len(path) == 2 and path[1].startswith("mlx5")] == ["mlx5_1:1"]
    expected = recording.bytes_per_second[1, 0].copy()
    expected[:200] = expected[500:] = np.nan
    found = values(tracks["node7", "mlx5_1:1", "mlx5_1:1 transmit"], recording)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1)
    (end, _) = render(tmp_path, file, "--last=1s")["node7", "mlx5_0:1", "mlx5_0:1 receive"].samples[-1]
    assert end == recording.end_ns - INTERVAL_NS


def test_a_dataset_is_on_one_clock(tmp_path: Path) -> None:
    clocks = {f"node{number}": ClockOffset(number * 1_000_000, 300_000) for number in range(1, 4)}
    place = dataset("traced", [plan(nodes=3, steps=6)], clocks=clocks)
    tracks = render(tmp_path, str(place))
    store = DatasetStore(str(place))
    for part in store.parts(RAW):
        file = store.local_path(RAW, part)
        assert file
        recording, ahead_ns = load(file), clocks[part.node].offset_ns
        samples = tracks[part.node, "mlx5_2:1", "mlx5_2:1 transmit"].samples
        assert samples[0][0] == recording.start_ns - INTERVAL_NS - ahead_ns
        known = np.array([value for _, value in samples]) * 1e9
        expected = recording.bytes_per_second[2, 0]
        np.testing.assert_allclose(known[~np.isnan(known)], expected[~np.isnan(expected)], rtol=0, atol=1)


def test_a_gap_between_parts_is_missing_data(tmp_path: Path) -> None:
    recording = make_recording(600, ports=2)
    for name, part in (("one", recording.cut(0, 200)), ("other", recording.cut(350, 600))):
        save(tmp_path / f"{name}.parquet", part)
    words = [str(tmp_path / "one.parquet"), str(tmp_path / "other.parquet")]
    assert main(["fleet", "collect", "-o", str(tmp_path / "set"), "--processes=1", *words], {}) == 0
    expected = recording.bytes_per_second[0, 0].copy()
    expected[200:350] = np.nan
    track = render(tmp_path, str(tmp_path / "set"))["node7", "mlx5_0:1", "mlx5_0:1 transmit"]
    np.testing.assert_allclose(values(track, recording), expected, rtol=0, atol=1)
