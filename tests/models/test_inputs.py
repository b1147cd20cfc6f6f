"""Inputs from flags, files, published jobs and recordings: their order, and refusals with place and way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibpulse.base.errors import ConfigError
from ibpulse.base.values import GivenText
from ibpulse.workbench.models.catalogue import CLUSTERS, JOBS, MODELS, SAMPLED_JOBS
from ibpulse.workbench.models.inputs import KEYS, JobFile, JobInputs, read_inputs, read_job_file
from ibpulse.workbench.models.prediction import Utilisation, predict
from ibpulse.workbench.models.report import assumptions

LEAST = {"model": "qwen2.5-7b", "nodes": "2"}
SHAPE = {"parameters": "7e9", "layers": "32", "hidden": "4096", "nodes": "2"}
ROUTED = {
    **SHAPE, "experts": "64", "experts-per-token": "6", "moe-layers": "30", "expert-parameters": "5e9",
}  # fmt: skip


def from_flags(texts: dict[str, str], file: JobFile | None = None) -> JobInputs:
    return read_inputs({name: GivenText(text, f"flag --{name}") for name, text in texts.items()}, file or JobFile())


def written(directory: Path, text: str) -> Path:
    path = directory / "job.yaml"
    path.write_text(text)
    return path


def test_defaults_of_missing_inputs() -> None:
    inputs = from_flags(LEAST)
    assert (inputs.job.node_gpus, inputs.hardware.rails, inputs.job.dp) == (8, 8, 16)
    assert inputs.hardware.rail_bytes_per_second == pytest.approx(47e9)
    assert (inputs.job.sharding, inputs.job.algorithm, inputs.job.micro_batches) == ("fsdp", "unknown", 1)


def test_every_input_reaches_the_job() -> None:
    texts = {
        **LEAST,
        "model": "mixtral-8x7b", "node": "dgx-a100", "nodes": "16", "gpus-per-node": "4", "rails": "2",
        "rail-rate": "20GB/s", "nvlink-rate": "200GB/s", "tp": "2", "cp": "2", "pp": "4", "ep": "4", "etp": "1",
        "virtual-stages": "2", "sharding": "zero2", "micro-batch": "2", "global-batch": "64", "sequence": "8192",
        "algorithm": "ring", "dispatch": "alltoall", "recompute": "full", "reduction": "once", "gradient-bytes": "4",
        "dispatch-bytes": "1.03", "combine-bytes": "1", "step": "2s", "attention": "causal",
        "prefetch": "2", "units": "16", "network": "fat-tree",
        "oversubscription": "7",
    }  # fmt: skip
    inputs = from_flags(texts)
    job = inputs.job
    assert (job.nodes, job.node_gpus, job.tp, job.cp, job.pp, job.dp, job.ep) == (16, 4, 2, 2, 4, 4, 4)
    assert (job.chunks, job.sharding, job.micro_batch, job.micro_batches, job.sequence) == (2, "zero2", 2, 8, 8192)
    assert (job.algorithm, job.dispatch, job.recompute, job.reduction) == ("ring", "alltoall", "full", "once")
    assert job.gradient_bytes == 4
    assert inputs.hardware.rails == 2
    assert (inputs.hardware.rail_bytes_per_second, inputs.hardware.nvlink_bytes_per_second) == (20e9, 200e9)
    assert (inputs.step.step_seconds, inputs.step.prefetch, inputs.step.units) == (2.0, 2, 16)
    assert (job.dispatch_bytes, job.combine_bytes) == (1.03, 1)
    for name in ("mfu", "hfu", "peak-share"):
        used = from_flags({**{name: one for name, one in texts.items() if name != "step"}, name: "0.4"}).step
        assert used.step_seconds is None
        assert used.utilisation == Utilisation(name, 0.4, 312e12, "causal")
    assert inputs.network.bytes_per_second == 16 * 2 * 20e9 / 14
    others = {
        "job", "cluster", "shard-ranks", "dimensions", "groups", "global-links", "mfu", "hfu", "peak-share",
        "kv-width", "attention-width", "vocabulary", "tied", *ROUTED,
    }  # fmt: skip
    assert set(texts) | others == set(KEYS)


def test_a_model_is_described_by_figures() -> None:
    model = from_flags({**ROUTED, "kv-width": "1024", "attention-width": "2048", "vocabulary": "32000"}).job.model
    assert (model.parameters, model.layers, model.hidden, model.kv_width) == (7e9, 32, 4096, 1024)
    assert (model.vocabulary, model.tied, model.expert_parameters, model.moe_layers) == (32_000, False, 5e9, 30)
    assert (model.experts, model.chosen_experts, model.attention_width) == (64, 6, 2048)
    assert model.multiplied_parameters == 2e9 + 5e9 * 6 / 64 - 32_000 * 4096
    tied = from_flags({**ROUTED, "vocabulary": "32000", "tied": "true"}).job.model
    assert (tied.tied, tied.multiplied_parameters) == (True, tied.active_parameters)


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        ({"model": "qwen2.5-7b"}, "nodes: is missing; give --nodes, or nodes in the file"),
        ({**LEAST, "nodes": "0"}, "flag --nodes: 0 is out of bounds; choose 1 to 10000000"),
        ({**LEAST, "model": "qwen2.5-8b"}, "flag --model: unknown value 'qwen2.5-8b'; did you mean qwen2.5-7b?"),
        ({**LEAST, "dimensions": "1,x"}, "flag --dimensions: 'x' is not a number; write it like 120"),
        ({**LEAST, "dimensions": "1," * 100}, "flag --dimensions: has 101 numbers; give at most 100"),
        ({"nodes": "2"}, "model: parameters, layers, hidden missing; give --model with the name of a published one"),
        ({**SHAPE, "experts": "8"}, "model: experts-per-token, moe-layers, expert-parameters missing"),
        ({**LEAST, "layers": "3"}, "flag --model: the model is described twice; give a name, a file or figures"),
        ({**LEAST, "mfu": "0.4", "hfu": "0.5"}, "flag --hfu: the time of the step already follows from mfu"),
        ({**ROUTED, "vocabulary": "500000"}, "flag --vocabulary: its embeddings have 2.048e+09 parameters"),
        ({**ROUTED, "moe-layers": "40"}, "flag --moe-layers: 40 is more than layers, 32"),
        ({**ROUTED, "experts-per-token": "65"}, "flag --experts-per-token: 65 is more than experts, 64"),
        ({**LEAST, "tp": "3"}, "job: tp x cp x pp = 3 does not divide 16 GPUs (2 x 8)"),
        ({**LEAST, "ep": "4"}, "flag --ep: 4 does not divide the 0 experts of qwen2.5-7b"),
        ({**LEAST, "sharding": "hsdp", "shard-ranks": "3"}, "flag --shard-ranks: 3 does not divide the 16 data"),
        ({**LEAST, "virtual-stages": "2"}, "flag --virtual-stages: 2 virtual stages need pp above 1"),
        ({**LEAST, "global-batch": "24"}, "flag --global-batch: 24 is not a multiple of micro-batch x dp = 1 x 16"),
        ({**LEAST, "groups": "4"}, "flag --groups: needs network, the kind of network that it describes"),
        ({**LEAST, "network": "torus"}, "flag --network: torus needs dimensions"),
        ({**LEAST, "network": "fat-tree", "groups": "4"}, "flag --groups: is not a figure of fat-tree; remove it"),
        ({**LEAST, "network": "torus", "dimensions": "4,2.5"}, "flag --dimensions: give up to 8 whole numbers"),
        ({**LEAST, "gpus-per-node": "6", "nodes": "2", "tp": "4", "pp": "3"}, "flag --tp: groups of 4 ranks at a"),
    ],
)
def test_invalid_and_contradicting_inputs_are_refused(texts: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        from_flags(texts)
    (found,) = refusal.value.faults
    assert found.startswith(fault)


def test_networks_and_clusters_take_their_figures() -> None:
    torus = from_flags({**LEAST, "network": "torus", "dimensions": "16,16,16", "rail-rate": "50GB/s"}).network
    assert torus.bytes_per_second == pytest.approx(25.6e12)
    dragonfly = from_flags({**LEAST, "network": "dragonfly", "groups": "64", "global-links": "8"}).network
    assert len(dragonfly.warnings) == 1
    rails = from_flags({**LEAST, "network": "rail-only", "rail-rate": "50GB/s"}).network
    assert rails.bytes_per_second == 8 * 2 * 50e9 / 2
    found = inputs(cluster="llama-3", model="llama-3.1-405b", tp="8", pp="16")
    assert found.job.gpus == 24_576
    # 24,576 links of 0.94 x 50 GB/s, halved, at 1:7
    assert found.network.bytes_per_second == pytest.approx(24_576 * 47e9 / 14)
    assert inputs(cluster="deepseek-v3", model="mixtral-8x7b").hardware.nvlink_bytes_per_second == pytest.approx(160e9)


def test_a_file_is_read_and_flags_take_precedence(tmp_path: Path) -> None:
    path = written(
        tmp_path, "model: mixtral-8x7b\nnodes: 2\ntp: 2\nsequence:\nnetwork: torus\ndimensions: [16, 16, 16]\n"
    )
    inputs = from_flags({"tp": "4"}, read_job_file(path))
    assert (inputs.job.model.name, inputs.job.nodes, inputs.job.tp, inputs.job.sequence) == ("mixtral-8x7b", 2, 4, 4096)
    assert inputs.network is not None
    assert inputs.given["nodes"].place == f"{path}:2: nodes"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("nodes: 2\nnode: 3\n", "{path}:2: node: unknown value '3'; choose dgx-a100, dgx-h100, h800 or dgx-b200"),
        ("sequnce: 2\n", "{path}:1: sequnce: no such key; did you mean sequence?"),
        ('"a\\e[31m": 2\n', "{path}:1: a\x1b[31m: no such key; docs/model-inputs.md lists all keys"),
        ("nodes: {a: 2}\n", "{path}:1: nodes: not a single value; write it like nodes: 8"),
        ("[1, 2]\n", "{path}: is not a mapping; write it like {{model: mixtral-8x7b, nodes: 2, step: 1444ms}}"),
        ("", "{path}: is empty; write it like {{model: mixtral-8x7b, nodes: 2, step: 1444ms}}"),
        ("a: [\n", "{path}:2: not YAML: "),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as refusal:
        from_flags({"model": "qwen2.5-7b"}, read_job_file(path))
    assert refusal.value.faults[0].startswith(fault.format(path=path))


def inputs(file: JobFile | None = None, **given: str) -> JobInputs:
    return from_flags({name.replace("_", "-"): text for name, text in given.items()}, file)


def test_presets_have_sources_and_valid_texts() -> None:
    for preset in (*JOBS.values(), *CLUSTERS.values()):
        assert preset.source
        assert set(preset.chosen) <= set(preset.texts)
        for name, text in preset.texts.items():
            KEYS[name].kind.parse(text)


@pytest.mark.parametrize("name", JOBS)
def test_published_jobs_are_complete(name: str) -> None:
    found = inputs(job=name)
    assert any(JOBS[name].source in sentence for sentence in assumptions(found))
    timelines = predict(found.job, found.hardware, found.step).timelines
    # the simulator plays the only reading
    assert len(timelines) == (1 if name in SAMPLED_JOBS else 0)


def test_flags_override_files_published_jobs_and_recordings() -> None:
    file = JobFile({"rails": GivenText("8", "job.yaml:1: rails"), "step": GivenText("2s", "job.yaml:2: step")})
    found = inputs(file, job="mixtral-8x7b-fsdp", step="3s", nodes="4")
    assert (found.job.nodes, found.hardware.rails, found.step.step_seconds) == (4, 8, 3.0)
    by_share = inputs(file, job="mixtral-8x7b-fsdp", mfu="0.3").step
    assert (by_share.step_seconds, by_share.utilisation and by_share.utilisation.kind) == (None, "mfu")
    assert inputs(JobFile({}, MODELS["qwen2.5-7b"]), job="mixtral-8x7b-fsdp").job.model is MODELS["qwen2.5-7b"]
    seen = {"step": GivenText("1s", "recording"), "rails": GivenText("6", "recording")}
    flags = {"model": GivenText("qwen2.5-7b", "x"), "nodes": GivenText("2", "x")}
    assert read_inputs(flags, JobFile(), seen).step.step_seconds == 1.0
    found = read_inputs({**flags, "mfu": GivenText("0.4", "x")}, JobFile(), seen)
    assert (found.step.step_seconds, found.hardware.rails) == (None, 6)
    assert read_inputs({"job": GivenText("qwen2.5-7b-fsdp", "x")}, JobFile(), seen).hardware.rails == 7


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(KEYS)), st.one_of(st.text(max_size=12), st.integers(-3, 300).map(str))))
def test_any_input_is_a_job_or_refused(texts: dict[str, str]) -> None:
    try:
        inputs = from_flags({**LEAST, **texts})
    except ConfigError:
        return
    assert inputs.job.dp >= 1
