"""Which part of a recording is described, and which ports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import RecordingError
from ibpulse.core.recordings import Recording, save
from ibpulse.workbench.reports.comparison import assemble
from ibpulse.workbench.reports.formats import render_json
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import Moment, ReportOptions, load_part
from ibpulse.workbench.simulate.workloads import DENSE
from tests.reports.recordings import SECOND_NS, START_NS, play, record, run_of, wave

GB = 1e9


@pytest.fixture
def recording() -> Recording:
    """Two seconds of silence, four of traffic on every other tick, one of silence; two rails."""
    rates = np.zeros((2, 2, 700))
    rates[:, :, 200:600] = wave(GB, 1, 1, 200, ports=2)
    return record(rates)


def test_trimming_cuts_silence_at_both_ends_and_refuses_silence_alone(recording: Recording) -> None:
    run = run_of(recording, ReportOptions(trim=True))
    # the last tick of the wave is silent
    assert run.values["window_seconds"] == pytest.approx(3.99)
    assert run.values["duty_cycle_ratio"] == pytest.approx(200 / 399)
    assert run.cut_seconds == pytest.approx((2.0, 1.01))
    assert (run.start_ns, run.end_ns) == (START_NS + 2 * SECOND_NS, START_NS + 5_990_000_000)
    with pytest.raises(RecordingError, match=r"recording /recordings/a\.parquet is never active, .* omit it"):
        run_of(record(np.zeros((1, 2, 300))), ReportOptions(trim=True))
    with pytest.raises(RecordingError, match="has no data between --from and --to: it is 7 s long; choose other times"):
        run_of(recording, ReportOptions(begin=Moment(8 * SECOND_NS, after_begin=True)))


@pytest.mark.parametrize("after_begin", [True, False], ids=["after the beginning", "of the clock"])
def test_a_part_is_cut_out_between_two_moments(recording: Recording, after_begin: bool) -> None:
    begin, end = (Moment(ns if after_begin else START_NS + ns, after_begin) for ns in (3 * SECOND_NS, 5 * SECOND_NS))
    run = run_of(recording, ReportOptions(begin=begin, end=end))
    assert run.values["window_seconds"] == pytest.approx(2.0)
    assert run.values["duty_cycle_ratio"] == pytest.approx(0.5)
    assert (run.start_ns, run.end_ns) == (START_NS + 3 * SECOND_NS, START_NS + 5 * SECOND_NS)


def test_rails_are_described_and_other_ports_are_not(recording: Recording) -> None:
    ports = (recording.meta.ports[0], replace(recording.meta.ports[1], rail=False))
    run = run_of(replace(recording, meta=replace(recording.meta, ports=ports)))
    assert [port.port for port in run.ports] == ["mlx5_0:1"]
    ports = tuple(replace(port, rail=False) for port in recording.meta.ports)
    with pytest.raises(RecordingError, match="has no rail; choose ports with --port: it has mlx5_0:1, mlx5_1:1"):
        run_of(replace(recording, meta=replace(recording.meta, ports=ports)))
    with pytest.raises(RecordingError, match="has no port mlx5_7, mlx5_8:2; it has mlx5_0:1, mlx5_1:1"):
        run_of(recording, ReportOptions(ports=("mlx5_7", "mlx5_0", "mlx5_8:2")))


@pytest.mark.parametrize("name", ["mlx5_1", "mlx5_1:1"])
def test_a_chosen_port_is_described_alone(recording: Recording, name: str) -> None:
    run = run_of(recording, ReportOptions(ports=(name,)))
    assert [port.port for port in run.ports] == ["mlx5_1:1"]
    assert run.values["peak_bytes_per_second"] == pytest.approx(2 * GB)


@pytest.mark.parametrize(
    "options",
    [
        ReportOptions(begin=Moment(3 * SECOND_NS, after_begin=True), end=Moment(5 * SECOND_NS, after_begin=True)),
        ReportOptions(begin=Moment(START_NS + 7 * SECOND_NS), trim=True),
        ReportOptions(end=Moment(2 * SECOND_NS, after_begin=True)),
        ReportOptions(),
    ],
)
def test_loading_a_part_equals_cutting_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: ReportOptions
) -> None:
    monkeypatch.setattr("ibpulse.core.recordings.writing.GROUP_ROWS", 100)
    recording = play(DENSE, 10)
    save(tmp_path / "a.parquet", recording)
    part, outside = load_part(tmp_path / "a.parquet", options)
    assert outside[0] + part.ticks + outside[1] == recording.ticks
    runs = [
        describe_run(Path("a"), recording, options),
        describe_run(Path("a"), part, options, outside=outside),
    ]
    pages = [render_json(assemble([run], options)) for run in runs]
    assert pages[0] == pages[1]


def test_the_last_seconds_are_loaded_alone(tmp_path: Path) -> None:
    recording = play(DENSE, 10)
    save(tmp_path / "a.parquet", recording)
    part, outside = load_part(tmp_path / "a.parquet", ReportOptions(), 2 * SECOND_NS)
    assert part == recording.cut(800, 1000)
    assert outside == (800, 0)
