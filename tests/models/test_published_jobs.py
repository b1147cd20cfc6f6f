"""Published jobs and clusters are defaults of inputs, with their sources; some can be played by the simulator."""

from __future__ import annotations

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.base.values import GivenText
from ibpulse.workbench.models.assumptions import assumptions
from ibpulse.workbench.models.input_keys import KEYS
from ibpulse.workbench.models.job_file import JobFile
from ibpulse.workbench.models.job_inputs import JobInputs, read_inputs
from ibpulse.workbench.models.prediction import predict
from ibpulse.workbench.models.presets import MODELS
from ibpulse.workbench.models.published_jobs import CLUSTERS, JOBS, SAMPLED_JOBS


def inputs(file: JobFile | None = None, **given: str) -> JobInputs:
    texts = {name.replace("_", "-"): GivenText(text, f"flag --{name}") for name, text in given.items()}
    return read_inputs(texts, file or JobFile())


def test_every_figure_has_a_source_and_every_text_is_an_input() -> None:
    for preset in (*JOBS.values(), *CLUSTERS.values()):
        assert preset.source
        assert set(preset.chosen) <= set(preset.texts)
        for name, text in preset.texts.items():
            KEYS[name].kind.parse(text)


@pytest.mark.parametrize("name", JOBS)
def test_a_published_job_is_whole(name: str) -> None:
    found = inputs(job=name)
    told = assumptions(found)
    assert any(JOBS[name].source in sentence for sentence in told)
    timelines = predict(found.job, found.hardware, found.step).timelines
    # the simulator plays the only reading
    assert len(timelines) == (1 if name in SAMPLED_JOBS else 0)


def test_exchanges_of_the_published_expert_parallel_job() -> None:
    found = inputs(job="qwen3-30b-a3b-ep16")
    rows = {row.source: row for row in predict(found.job, found.hardware, found.step).sources}
    assert rows["experts"].gpu_bytes.low / 1e9 == pytest.approx(824.6, rel=1e-3)


def test_files_and_flags_override_a_published_job() -> None:
    file = JobFile({"rails": GivenText("8", "job.yaml:1: rails"), "step": GivenText("2s", "job.yaml:2: step")})
    found = inputs(file, job="mixtral-8x7b-fsdp", step="3s", nodes="4")
    assert (found.job.nodes, found.hardware.rails, found.step.step_seconds) == (4, 8, 3.0)
    by_share = inputs(file, job="mixtral-8x7b-fsdp", mfu="0.3").step
    assert (by_share.step_seconds, by_share.utilisation and by_share.utilisation.kind) == (None, "mfu")
    assert inputs(JobFile({}, MODELS["qwen2.5-7b"]), job="mixtral-8x7b-fsdp").job.model is MODELS["qwen2.5-7b"]


def test_a_cluster_has_its_nodes_and_its_network() -> None:
    found = inputs(cluster="llama-3", model="llama-3.1-405b", tp="8", pp="16")
    assert found.job.gpus == 24_576
    assert found.network is not None
    # 24,576 links of 0.94 x 50 GB/s, halved, at 1:7
    assert found.network.bytes_per_second == pytest.approx(24_576 * 47e9 / 14)
    assert inputs(cluster="deepseek-v3", model="mixtral-8x7b").hardware.nvlink_bytes_per_second == pytest.approx(160e9)


def test_what_a_recording_shows_is_the_last_resort() -> None:
    seen = {"step": GivenText("1s", "recording"), "rails": GivenText("6", "recording")}
    flags = {"model": GivenText("qwen2.5-7b", "x"), "nodes": GivenText("2", "x")}
    assert read_inputs(flags, JobFile(), seen).step.step_seconds == 1.0
    found = read_inputs({**flags, "mfu": GivenText("0.4", "x")}, JobFile(), seen)
    assert (found.step.step_seconds, found.hardware.rails) == (None, 6)
    assert read_inputs({"job": GivenText("qwen2.5-7b-fsdp", "x")}, JobFile(), seen).hardware.rails == 7


def test_an_unknown_job_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"flag --job: unknown value 'mixtral-8x7b-fsd'; did you mean mixtral-8x7b-fsdp[?]"
    ):
        inputs(job="mixtral-8x7b-fsd")
