"""The part of a recording that is described, its rows and intervals, against simulated workloads and closed forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import RecordingError
from ibpulse.core.model import PortIdentity
from ibpulse.core.recordings import Recording, save
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import PortSignals
from ibpulse.workbench.reports.comparison import assemble
from ibpulse.workbench.reports.formats import render_json
from ibpulse.workbench.reports.run import Run, describe_run
from ibpulse.workbench.reports.span import Moment, ReportOptions, load_part
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import CAPTURED_RAILS, DENSE, MOE, Fsdp
from tests.reports.recordings import LINE, SECOND_NS, START_NS, play, record, report_of, run_of, wave
from tests.truth import truth_of

WAIT = Signal("port_transmit_wait", 32, stops=True)
SECONDS = 60
GB = 1e9


@pytest.fixture(scope="module", params=[DENSE, MOE], ids=["dense", "moe"])
def workload(request: pytest.FixtureRequest) -> Fsdp:
    found: Fsdp = request.param
    return found


@pytest.fixture(scope="module")
def run(workload: Fsdp) -> Run:
    return run_of(play(workload, SECONDS))


@pytest.fixture(scope="module")
def schedule(workload: Fsdp) -> Schedule:
    return Schedule(workload)


def value(run: Run, key: str) -> float:
    found = run.values[key]
    assert isinstance(found, float)
    return found


# a minute of the dense and of the MoE run, against the exact bytes of their schedules


def test_throughput_is_that_of_the_schedule(run: Run, schedule: Schedule) -> None:
    truth = truth_of(schedule, 0, SECONDS * SECOND_NS)
    # counters count words, so each of 16 may lack one at either end of a tick
    word = {"rel": 1e-6, "abs": 16 * 4 / 0.01}
    assert value(run, "mean_bytes_per_second") == pytest.approx(truth.mean, **word)
    assert value(run, "active_mean_bytes_per_second") == pytest.approx(truth.active_mean, **word)
    assert value(run, "peak_bytes_per_second") == pytest.approx(truth.peak, **word)
    assert value(run, "peak_to_mean_ratio") == pytest.approx(truth.peak / truth.mean, rel=1e-6)
    assert value(run, "duty_cycle_ratio") == pytest.approx(truth.duty, abs=1e-9)
    transmit = truth_of(schedule, 0, SECONDS * SECOND_NS, directions=(0,))
    assert value(run, "transmit_bytes_per_second") == pytest.approx(transmit.mean, **word)
    # also of the one that is idle
    assert value(run, "line_bytes_per_second") == 2 * 8 * LINE
    assert value(run, "utilization_ratio") == pytest.approx(truth.mean / (16 * LINE), rel=1e-6)
    assert value(run, "peak_utilization_ratio") == pytest.approx(truth.peak / (16 * LINE), rel=1e-6)


def test_step_time_bytes_and_gap_equal_the_schedules(run: Run, schedule: Schedule, workload: Fsdp) -> None:
    truth = np.diff(schedule.step_starts_ns(0, SECONDS * SECOND_NS)) / SECOND_NS
    assert value(run, "step_seconds") == pytest.approx(truth.mean(), rel=2e-3)
    assert value(run, "step_period_seconds") == pytest.approx(truth.mean(), rel=3e-3)
    assert value(run, "step_spread_seconds") == pytest.approx(truth.std(), rel=0.2)
    # both directions of eight rails
    assert value(run, "step_bytes") == pytest.approx(2 * workload.step_bytes * 8 / CAPTURED_RAILS, rel=2e-3)
    assert run.values["steps"] in (len(truth) - 3, len(truth) - 2, len(truth) - 1)
    truth = truth_of(schedule, 0, SECONDS * SECOND_NS)
    step = np.diff(schedule.step_starts_ns(0, SECONDS * SECOND_NS)).mean() / SECOND_NS
    assert value(run, "step_gap_seconds") == pytest.approx((1 - truth.duty) * step, rel=0.01)


def test_intervals_cover_a_longer_run(run: Run, workload: Fsdp) -> None:
    starts = np.diff(Schedule(workload, seed=99).step_starts_ns(0, 600 * SECOND_NS)) / SECOND_NS
    truth = truth_of(Schedule(workload, seed=99), 0, 600 * SECOND_NS)
    for key, exact in {
        "step_seconds": starts.mean(),
        "step_bytes": 2 * workload.step_bytes * 8 / CAPTURED_RAILS,
        "duty_cycle_ratio": truth.duty,
        "mean_bytes_per_second": truth.mean,
        "burstiness_cv_10ms": truth.cv,
    }.items():
        low, high = run.spreads[key].interval(0.999)
        assert low <= exact <= high, key


def test_idle_rail_and_signature_are_named(workload: Fsdp) -> None:
    recording = play(workload, SECONDS)
    recording.bytes_per_second[6] = 0
    run = run_of(recording)
    assert run.values["idle_rails"] == ("mlx5_6:1",)
    assert run.values["slow_rails"] == ()
    assert run.values["fairness_ratio"] == pytest.approx(7 / 8, abs=1e-9)
    assert (run.values["rails"], run.values["active_rails"]) == (8, 7)
    assert run.values["signature"] == f"{workload.name}_like"
    assert value(run, "signature_confidence") > 0.5
    assert [port.idle for port in run.ports] == [False] * 6 + [True, False]
    assert run.ports[0].share_ratio == pytest.approx(1 / 7, rel=1e-6)


# closed forms


def test_slow_counters_hide_single_sample_statistics() -> None:
    recording = play(DENSE, 20)
    ports = tuple(replace(port, resolution_seconds=0.03) for port in recording.meta.ports)
    run = run_of(replace(recording, meta=replace(recording.meta, ports=ports)))
    for key in ("peak_bytes_per_second", "duty_cycle_ratio", "bursts", "step_gap_seconds", "burstiness_cv_10ms"):
        assert run.values[key] is None
        assert key not in run.spreads
    assert value(run, "burstiness_cv_50ms") > 0
    assert value(run, "step_seconds") == pytest.approx(0.3148, rel=0.01)
    assert run.values["signature"] == "unknown"


def test_irregular_traffic_is_resampled_in_blocks() -> None:
    rng = np.random.default_rng(4)
    rates = np.broadcast_to(rng.gamma(2.0, 5 * GB, 6000), (1, 2, 6000))
    run = run_of(record(rates))
    assert run.values["step_seconds"] is None
    assert run.values["steps"] == 0
    assert (run.units, run.unit_count, run.unit_seconds) == ("block", 60, pytest.approx(1.0))
    low, high = run.spreads["mean_bytes_per_second"].interval(0.99)
    assert low <= 2 * 2 * 5 * GB <= high


def test_active_quantiles_use_active_samples() -> None:
    """Of the rates 0, 1, 2, … 100 GB/s of a node, 100 are active: by definition 7 of Hyndman and Fan."""
    rates = np.broadcast_to(np.arange(101) * 0.5e9, (1, 2, 101)).copy()
    values = run_of(record(rates)).values
    assert values["active_p50_bytes_per_second"] == pytest.approx(50.5e9)
    assert values["active_p95_bytes_per_second"] == pytest.approx(95.05e9)
    assert run_of(record(rates[:, :, :1].repeat(5, axis=2))).values["active_p50_bytes_per_second"] is None


# below the threshold of 100 MB/s nothing is active, however regular it is


def test_no_active_samples_no_step_rows() -> None:
    chatter = np.zeros((1, 2, 12_000))
    chatter[:, :, ::3000] = 1.75e5
    report = report_of(record(chatter))
    assert [row.key for row in report.rows if row.section in ("Steps", "Overlap, bounds from the wire")] == []
    assert value(report.runs[0], "mean_bytes_per_second") == pytest.approx(3.5e5 / 3000, rel=1e-6)


# edges lie anywhere in a tick, so a burst makes one tick more busy than its length, and a gap loses that tick
BOUNDS = ("wire_seconds_lower", "exposed_seconds_lower", "exposed_seconds_upper")


@pytest.mark.parametrize(
    ("computing", "low", "high"),
    [((), 0.0, 0.2), ((0.0,), 0.2, 0.2), ((0.3,), 0.05, 0.2), ((0.7,), 0.0, 0.15), ((1.0,), 0.0, 0.0)],
)
def test_bounds_from_the_wire_follow_the_closed_form(computing: tuple[float, ...], low: float, high: float) -> None:
    """Steps of 0.5 s, of which the busier direction carries half of the line rate for 0.2 s."""
    rates = wave(LINE / 2, 20, 30, 60, ports=2)
    rates[:, 1] /= 2
    run = run_of(record(rates), ReportOptions(gpu_active=computing))
    assert run.values["step_silent_ratio"] == pytest.approx(0.6)
    assert [run.values[key] for key in BOUNDS] == pytest.approx([0.1, low, high], abs=1e-9)


def test_signs_without_steps_are_told_per_burst() -> None:
    """Bursts at ever longer distances on a rail that waits for half of the time; the last one is at the usual peak."""
    bursts = [wave(25e9, 20, 20 + 2 * number, 1) for number in range(40)]
    rates = np.concatenate([*bursts, wave(50e9, 150, 50, 1)], axis=2)
    whole = record(rates)
    port = replace(whole.meta.ports[0], signals=(WAIT,), identity=PortIdentity(link_layer="InfiniBand"))
    samples = np.arange(9, whole.ticks, 10)
    sent = np.add.reduceat(rates[0, 0] == 25e9, samples[:-1] + 1)
    waited = 1 + np.append(0, np.cumsum(sent * round(0.005 * LINE / 8)))
    signals = PortSignals(samples, np.append(np.nan, np.full(len(samples) - 1, 0.1)), waited[:, None].astype(np.uint64))
    found = run_of(replace(whole, meta=replace(whole.meta, ports=(port,)), signals=(signals,))).limits
    (path,) = [limit.text for limit in found if limit.sign == "path"]
    assert "of the communication of a burst shows signs of the path: waiting about " in path


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
    monkeypatch.setattr("ibpulse.core.recordings.files.GROUP_ROWS", 100)
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
