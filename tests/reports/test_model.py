"""Predictions beside recordings whose bytes are known: the published runs, ranges, rails, and what is not explained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.base.values import GivenText
from ibpulse.cli import main
from ibpulse.core.recordings import Recording, save
from ibpulse.workbench.models.inputs import JobFile, read_inputs
from ibpulse.workbench.models.prediction import Prediction, ValueRange, predict
from ibpulse.workbench.reports.model import ModelComparison, compare_with_model, measure_traffic
from ibpulse.workbench.reports.span import ReportOptions
from ibpulse.workbench.simulate.workloads import PREFIX, Square, make_workload
from tests.reports.recordings import play

# rate of the node (GB/s) and bytes per step (GB), both directions, CV at 10 ms; the last is the published one
PUBLISHED = {"qwen2.5-7b-fsdp": (272.0, 85.68, 0.20), "mixtral-8x7b-fsdp": (363.9, 525.4, 0.42)}
OPTIONS = ReportOptions(timescales_ns=(10_000_000, 100_000_000))


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    """Twenty seconds of each published job as the simulator plays it."""
    played = {job: play(make_workload(PREFIX + job), 20) for job in PUBLISHED}
    return {job: replace(one, meta=replace(one.meta, simulated=True)) for job, one in played.items()}


def prediction(**given: str) -> Prediction:
    texts = {name.replace("_", "-"): GivenText(text, name) for name, text in given.items()}
    inputs = read_inputs(texts, JobFile())
    return predict(inputs.job, inputs.hardware, inputs.step)


def compare(recording: Recording, **given: str) -> ModelComparison:
    return compare_with_model(prediction(**given), measure_traffic("run.parquet", recording, OPTIONS))


@pytest.mark.parametrize("job", PUBLISHED)
def test_demo_recording_matches_the_published_run(job: str, recordings: dict[str, Recording]) -> None:
    found = compare(recordings[job], job=job)
    values = {value.key: value for value in found.node}
    rate, gigabytes, cv = PUBLISHED[job]
    sent, received = values["sent_bytes"], values["received_bytes"]
    assert (sent.measured + received.measured) / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    assert 2 * sent.predicted.low / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    mean, burstiness = values["mean_bytes_per_second"], values["cv_0.01s"]
    assert mean.measured / 1e9 == pytest.approx(rate, rel=1e-3)
    assert burstiness.measured == pytest.approx(cv, abs=0.1)
    assert burstiness.measured == pytest.approx(burstiness.predicted.low, abs=0.03)


def test_idle_rail_has_no_prediction(recordings: dict[str, Recording]) -> None:
    found = compare(recordings["mixtral-8x7b-fsdp"], job="mixtral-8x7b-fsdp")
    assert [name for name, sent, _ in found.rails if sent.predicted is None] == ["mlx5_6:1"]
    for name, sent, received in found.rails:
        expected = 0.0 if name == "mlx5_6:1" else 262.7e9 / 7
        assert (sent.measured, received.measured) == (pytest.approx(expected, rel=2e-3),) * 2
    assert sum(sent.measured or 0 for _, sent, _ in found.rails) == pytest.approx(found.node[1].measured)


def test_a_range_keeps_both_residuals(recordings: dict[str, Recording]) -> None:
    recording = recordings["mixtral-8x7b-fsdp"]
    values = {value.key: value for value in compare(recording, model="mixtral-8x7b", nodes="2", step="1444ms").node}
    sent = values["sent_bytes"]
    assert sent.predicted.low * 15 / 8 == pytest.approx(sent.predicted.high)
    # the ring that was played is the upper end of the range
    assert sent.unexplained.high == pytest.approx(262.7e9 * 7 / 15, rel=2e-3)
    assert abs(sent.unexplained.low) < 1e9


def test_a_measurement_that_is_off_stays_off() -> None:
    """A square wave of 20 GB/s per rail for half of each 0.5 s, next to a job that sends other bytes."""
    recording = play(Square(500_000_000, 0.5, 20e9), 20)
    found = compare(recording, job="qwen2.5-7b-fsdp")
    values = {value.key: value for value in found.node}
    assert values["sent_bytes"].measured == pytest.approx(8 * 20e9 * 0.25, rel=1e-3)
    assert values["busy_seconds"].measured == pytest.approx(0.25, abs=0.01)
    assert found.step_seconds == pytest.approx(0.5, rel=1e-3)
    headers = ValueRange(1 + 24 / 4096, 1 + 82 / 1024)
    assert found.headers == headers
    low = 8 * 20e9 * 0.25 - 42.838e9 * headers.high
    assert values["sent_bytes"].unexplained == ValueRange(
        pytest.approx(low, rel=0.01), pytest.approx(40e9 - 42.838e9 * headers.low, rel=0.01)
    )
    assert [remark.partition(";")[0] for remark in found.remarks] == [
        "steps of the recording take 500 ms, the step of the prediction 315 ms",
        "8 of 8 rails carry traffic, the prediction has 7",
    ]


def test_micro_batch_rhythm_gives_whole_steps() -> None:
    recording = play(Square(500_000_000, 0.5, 20e9), 20)
    found = compare(recording, model="qwen2.5-7b", nodes="2", global_batch="64", step="2s")
    assert found.step_seconds == pytest.approx(2.0, rel=1e-3)
    assert found.node[1].measured == pytest.approx(8 * 20e9, rel=1e-3)
    assert "that of 4 micro-batches per step" in found.remarks[0]


def test_missing_samples_are_excluded_until_too_many_are_missing(recordings: dict[str, Recording]) -> None:
    whole = recordings["mixtral-8x7b-fsdp"]
    rates, seconds = whole.bytes_per_second.copy(), whole.seconds.copy()
    rates[:, :, 500:530], seconds[:, :, 500:530] = np.nan, 0.0
    found = compare(Recording(whole.meta, whole.start_ns, rates, seconds), job="mixtral-8x7b-fsdp")
    assert found.node[1].measured == pytest.approx(262.7e9, rel=0.01)
    assert found.remarks == ("98.50 % of the window was observed; missing samples are excluded",)
    found = compare(losing(recordings["mixtral-8x7b-fsdp"], 10), job="mixtral-8x7b-fsdp")
    measured = {value.key: value.measured for value in found.node}
    assert (found.measured.rhythm_seconds, found.measured.stretch.size) == (None, 0)
    assert (measured["peak_bytes_per_second"], measured["cv_0.1s"]) == (None, None)
    assert measured["mean_bytes_per_second"] == pytest.approx(363.9e9, rel=0.05)
    assert found.remarks[0].startswith("so many samples are missing that steps and the peak of the recording are not")


def losing(whole: Recording, every: int) -> Recording:
    """The recording without every so many-th sample."""
    rates, seconds = whole.bytes_per_second.copy(), whole.seconds.copy()
    rates[:, :, ::every], seconds[:, :, ::every] = np.nan, 0.0
    return replace(whole, bytes_per_second=rates, seconds=seconds)


def test_a_picture_says_why_it_shows_no_measurement(
    recordings: dict[str, Recording], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "moe.parquet", losing(recordings["mixtral-8x7b-fsdp"], 50))
    picture = tmp_path / "steps.svg"
    words = ["model", "--job=mixtral-8x7b-fsdp", "--step=1.444s", f"--against={tmp_path / 'moe.parquet'}"]
    assert main([*words, "-o", str(picture)], {}) == 0
    said = "not drawn: no whole step in moe.parquet"
    assert capsys.readouterr().err == f"ibpulse: {picture}: {said}\n"
    assert said in picture.read_text()


def test_command_reads_step_and_rails_from_recording(
    recordings: dict[str, Recording], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "moe.parquet"
    save(file, recordings["mixtral-8x7b-fsdp"])
    words = ["model", "--model=mixtral-8x7b", "--nodes=2", "--algorithm=ring", "--recompute=full", f"--against={file}"]
    assert main([*words, "--format=json"], {}) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert document["given"]["rails"] == {"text": "7", "place": f"recording {file}: rails"}
    assert document["step"]["seconds"]["low"] == pytest.approx(1.444, rel=1e-3)
    compared = document["compared"]
    (sent,) = [value for value in compared["node"] if value["key"] == "sent_bytes"]
    assert abs(sent["unexplained"]["low"]) < 0.01 * sent["measured"]
    assert (compared["simulated"], compared["headers"]) == (True, {"low": 1.0, "high": 1.0})
    assert main([*words, "--mfu=0.5", "--format=json"], {}) == 0
    (step, *_) = json.loads(capsys.readouterr().out)["compared"]["node"]
    # the step that follows from compute is compared with the measured one
    assert (step["key"], step["predicted"] is not None) == ("step_seconds", True)
