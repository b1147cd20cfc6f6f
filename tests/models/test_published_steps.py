"""The step that follows from a published utilisation, against published steps and published counts of operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ibpulse.base.values import GivenText
from ibpulse.workbench.models.inputs import JobFile, JobInputs, read_inputs
from ibpulse.workbench.models.prediction import Prediction, StepPrediction, predict
from ibpulse.workbench.models.report import assumptions
from tests.docs.pages import ROOT
from tests.tables import for_each

LLAMA_3 = {"model": "llama-3.1-405b", "tp": "8", "pp": "16", "sharding": "zero1", "recompute": "none"}
GPT = {"node": "dgx-a100", "sequence": "2048", "tied": "true", "sharding": "zero1", "recompute": "full"}
FSDP = {"model": "gpt-3-175b", "node": "dgx-a100", "sequence": "2048", "sharding": "fsdp", "recompute": "full"}
A100, H100 = 312e12, 989e12


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """A published job as a row of docs/model-formulas.md: its figures, the inputs of `ibpulse model`, and the step.

    `seconds` is None where no time of a step is published; `derived` is then the step that follows from other published
    figures, with 6 operations per parameter and token, 8 with recomputation.
    """

    name: str
    given: str
    texts: Mapping[str, str]
    seconds: float | None
    source: str
    derived: float | None = None


PUBLISHED = (
    PublishedStep(
        "Llama 3 405B, 16,384 H100",
        "MFU 41 %",
        {**LLAMA_3, "nodes": "2048", "sequence": "8192", "global-batch": "2048", "mfu": "0.41"},
        None,
        "arXiv 2407.21783, table 4: 400 TFLOP/s",
        6 * 405e9 * 2048 * 8192 / (16_384 * 400e12),
    ),
    PublishedStep(
        "Llama 3 405B, 8,192 H100",
        "MFU 43 %",
        {**LLAMA_3, "nodes": "1024", "sequence": "8192", "global-batch": "2048", "mfu": "0.43"},
        None,
        "arXiv 2407.21783, table 4: 430 TFLOP/s",
        6 * 405e9 * 2048 * 8192 / (8192 * 430e12),
    ),
    PublishedStep(
        "Llama 3 405B, 131,072 tokens",
        "MFU 38 %",
        {**LLAMA_3, "nodes": "2048", "cp": "16", "sequence": "131072", "global-batch": "128", "mfu": "0.38"},
        None,
        "arXiv 2407.21783, table 4: 380 TFLOP/s",
        6 * 405e9 * 128 * 131_072 / (16_384 * 380e12),
    ),
    PublishedStep(
        "MegaScale 175B, 12,288 A100",
        "MFU 55.2 %",
        {
            "model": "gpt-3-175b", "node": "dgx-a100", "nodes": "1536", "tp": "8", "pp": "8", "virtual-stages": "6",
            "sequence": "2048", "global-batch": "6144", "sharding": "zero1", "recompute": "none", "mfu": "0.552",
        },
        6.34,
        "arXiv 2402.15627, table 2",
    ),
    PublishedStep(
        "MT-NLG 530B, 2,240 A100",
        "126 TFLOP/s, HFU 40.4 %",
        {
            **GPT, "parameters": "530e9", "layers": "105", "hidden": "20480", "vocabulary": "51200", "nodes": "280",
            "tp": "8", "pp": "35", "global-batch": "1920", "hfu": str(126e12 / A100),
        },
        60.1,
        "arXiv 2201.11990, section 2.4",
    ),
    PublishedStep(
        "Megatron-LM 1T, 3,072 A100",
        "163 TFLOP/s, HFU 52.2 %",
        {
            **GPT, "parameters": "1008e9", "layers": "128", "hidden": "25600", "vocabulary": "51200", "nodes": "384",
            "tp": "8", "pp": "64", "global-batch": "3072", "hfu": str(163e12 / A100),
        },
        84 * 86_400 * 3072 * 2048 / 450e9,
        "arXiv 2104.04473, section 5.1: 84 days for 450e9 tokens",
    ),
    PublishedStep(
        "BLOOM 176B, 384 A100",
        "149 TFLOP/s, HFU 47.8 %",
        {
            **GPT, "parameters": "176.247e9", "layers": "70", "hidden": "14336", "vocabulary": "250680", "nodes": "48",
            "rails": "4", "rail-rate": "11.75GB/s", "tp": "4", "pp": "12", "micro-batch": "2", "global-batch": "2048",
            "hfu": str(149.02e12 / A100),
        },
        105.22,
        "bigscience-workshop/bigscience, tr11-176B-ml/chronicles.md: iteration 12,695",
    ),
    PublishedStep(
        "OPT-175B, 992 A100",
        "147 TFLOP/s, HFU 47.1 %",
        {**FSDP, "nodes": "124", "tp": "8", "micro-batch": "8", "global-batch": "992", "hfu": str(147e12 / A100)},
        None,
        "arXiv 2205.01068, section 2.5: up to 147 TFLOP/s",
        8 * 175e9 * 992 * 2048 / (992 * 147e12),
    ),
    PublishedStep(
        "PyTorch FSDP 175B, 512 A100",
        "186 TFLOP/s, HFU 59.6 %",
        {**FSDP, "nodes": "64", "micro-batch": "2", "hfu": str(186e12 / A100)},
        None,
        "arXiv 2304.11277, section 5.4: 186 TFLOP/s with 2 sequences per GPU",
        8 * 175e9 * 2 * 2048 / 186e12,
    ),
    PublishedStep(
        "DeepSeek-V3, 2,048 H800",
        "MFU 38.94 %, causal",
        {
            "model": "deepseek-v3", "node": "h800", "nodes": "256", "pp": "16", "ep": "64", "sharding": "zero1",
            "global-batch": "15360", "sequence": "4096", "dispatch": "deduplicated", "mfu": "0.3894",
            "attention": "causal",
        },
        19.926,
        "arXiv 2505.09343, table 4",
    ),
    PublishedStep(
        "Mixtral 8x7B, 128 H100",
        "MFU 46.8 %",
        {
            "model": "mixtral-8x7b", "nodes": "16", "ep": "8", "pp": "4", "global-batch": "256", "sequence": "4096",
            "sharding": "zero1", "recompute": "none", "mfu": "0.468",
        },
        None,
        "arXiv 2412.09952: a model of this size; batch and sequence assumed",
        6 * 12.88e9 * 256 * 4096 / (128 * 0.468 * H100),
    ),
)  # fmt: skip
LLAMA, MTNLG, DEEPSEEK = PUBLISHED[0], PUBLISHED[4], PUBLISHED[9]
TOKENS = {"llama": 2048 * 8192, "mtnlg": 1920 * 2048, "deepseek": 15_360 * 4096}


def read(texts: Mapping[str, str], **more: str) -> JobInputs:
    given = {**texts, **{name.replace("_", "-"): text for name, text in more.items()}}
    return read_inputs({name: GivenText(text, f"flag --{name}") for name, text in given.items()}, JobFile())


def prediction(texts: Mapping[str, str], **more: str) -> Prediction:
    inputs = read(texts, **more)
    return predict(inputs.job, inputs.hardware, inputs.step)


def step(texts: Mapping[str, str], **more: str) -> StepPrediction:
    return prediction(texts, **more).step


def without_utilisation(row: PublishedStep) -> dict[str, str]:
    return {name: text for name, text in row.texts.items() if name not in ("mfu", "hfu", "attention")}


@for_each({row.name: row for row in PUBLISHED})
def test_published_jobs_have_their_published_step(row: PublishedStep) -> None:
    seconds, found = row.seconds or row.derived, step(row.texts).seconds
    nearest = min(max(seconds, found.low), found.high)
    assert nearest / seconds == pytest.approx(1, abs=0.02)
    assert found.low / seconds == pytest.approx(1, abs=0.05)


def test_published_utilisations_follow_from_counted_operations() -> None:
    """PaLM, arXiv 2204.02311, section 4.1, says of MT-NLG's 60.1 s: 29.7 % without attention scores, 30.2 % with."""
    texts = without_utilisation(MTNLG)
    for share, attention in (("0.297", "none"), ("0.302", "full")):
        found = step(texts, mfu=share, attention=attention).seconds
        assert found.low == found.high == pytest.approx(60.1, rel=0.005)
    # DeepSeek-V3 has 385 and 432 TFLOP/s with and without a causal mask, in steps of 19.926 s (arXiv 2505.09343)
    for rate, attention in ((385e12, "causal"), (432e12, "full")):
        found = step(without_utilisation(DEEPSEEK), mfu=str(rate / H100), attention=attention).seconds
        assert found.low == pytest.approx(19.926, rel=0.005)
    # Qwen3-30B-A3B: 244.039 TFLOP/s of the model in steps of 24.71 s (Megatron-Bridge); embeddings would add 8 %
    texts = {"job": "qwen3-30b-a3b-ep16", "mfu": str(244.039e12 / H100), "attention": "causal"}
    assert step(texts).seconds.low == pytest.approx(24.71, rel=0.005)


def test_the_step_of_an_mfu_is_its_definition() -> None:
    """Operations over GPUs, peak and MFU, whatever recomputation, pipeline and network do."""
    parameters = 405.85e9 - 128_256 * 16_384
    attention = 12 * 126 * 16_384 * 8192
    expected = [(6 * parameters + one) * TOKENS["llama"] / (16_384 * 0.41 * H100) for one in (0, attention)]
    slow = {"rails": "1", "rail_rate": "40GB/s"}
    for more in ({}, {"recompute": "full"}, {"virtual_stages": "2"}, slow):
        found = step(LLAMA.texts, **more).seconds
        assert [found.low, found.high] == pytest.approx(expected, rel=1e-4)
    halved = step(LLAMA.texts, attention="causal").seconds
    assert halved.low == halved.high == pytest.approx(sum(expected) / 2, rel=1e-4)


def test_recomputation_is_counted_by_hfu_alone() -> None:
    texts = without_utilisation(MTNLG)
    model = step(texts, mfu="0.3").seconds
    for recompute, factors in (("none", (1, 1)), ("full", (4 / 3, 4 / 3)), ("unknown", (1, 4 / 3))):
        found = step(texts, hfu="0.3", recompute=recompute).seconds
        assert (found.low, found.high) == pytest.approx((factors[0] * model.low, factors[1] * model.high))


def test_communication_and_bubble_extend_compute_and_rates_follow() -> None:
    texts = without_utilisation(MTNLG) | {"peak-share": "0.5", "attention": "none", "algorithm": "ring"}
    parameters = 530e9
    compute = 8 * parameters * TOKENS["mtnlg"] / (2240 * 0.5 * A100)
    whole = prediction(texts)
    found = whole.step
    assert found.compute.low == found.compute.high == pytest.approx(compute)
    # 34 of 240 micro-batches of a pipeline of 35 stages are idle
    assert found.seconds.low == pytest.approx(compute * (1 + 34 / 240))
    assert found.seconds.high == pytest.approx(compute * (1 + 34 / 240) + whole.communication_seconds.high)
    found = prediction(LLAMA.texts, attention="none", algorithm="ring", gradient_bytes="2")
    seconds = found.step.seconds.low
    sent = found.step.transmit_rate
    assert (sent.low, sent.high) == pytest.approx((found.node_bytes.low / seconds, found.node_bytes.high / seconds))


def test_impossible_utilisations_warn() -> None:
    texts = without_utilisation(MTNLG)
    (warning,) = prediction(texts, mfu="0.8").warnings
    assert warning.startswith("with full recomputation, an MFU of 80 % needs 106.7 % of the peak")
    assert prediction(texts, mfu="0.74").warnings == ()
    inputs = read(texts, mfu="0.4")
    slow = predict(inputs.job, replace(inputs.hardware, rail_bytes_per_second=1e6), inputs.step)
    assert "readings above the step are impossible" in slow.warnings[0]


def test_assumptions_state_counted_operations() -> None:
    texts = without_utilisation(MTNLG)

    def told(**more: str) -> str:
        return "\n".join(assumptions(read(texts, **more)))

    assert "an MFU of 40.4 % is an HFU of 53.87 %" in told(mfu="0.404")
    assert "published FLOP/s that count recomputation, over the peak, are hfu" in told(mfu="0.404", recompute="none")
    assert "attention unknown: the range covers scores that are not counted and all of them, 1.66 %" in told(hfu="0.4")
    assert "attention scores add 0.831 % to these operations" in told(hfu="0.4", attention="causal")
    assert "recomputation unknown" in told(hfu="0.4", tp="1", recompute="unknown")


@for_each(
    {
        "bytes unknown": ({}, 245.9, 324.4),
        "FP8 there, BF16 back": ({"dispatch_bytes": "1.03125"}, 245.9, 245.9),
        "BF16 both ways": ({"dispatch_bytes": "2"}, 324.4, 324.4),
        "FP8 both ways": ({"dispatch_bytes": "1.03125", "combine_bytes": "1.03125"}, 167.3, 167.3),
        "recomputed": ({"dispatch_bytes": "2", "recompute": "full"}, 486.7, 486.7),
    }
)
def test_bytes_of_a_published_expert_parallel_job(more: dict[str, Any], low: float, high: float) -> None:
    """58 layers x 120 micro-batches x 4096 tokens x 3.175 copies x 7168 elements in 16 stages, there and back twice."""
    rows = {row.source: row for row in prediction(DEEPSEEK.texts, **{"recompute": "none", **more}).sources}
    found = rows["experts"].gpu_bytes
    assert (found.low / 1e9, found.high / 1e9) == pytest.approx((low, high), rel=1e-3)


def test_the_page_has_published_and_predicted_steps() -> None:
    page = (ROOT / "docs/model-formulas.md").read_text()
    for row in PUBLISHED:
        assert page_row(row) in page


def page_row(row: PublishedStep) -> str:
    """The row of docs/model-formulas.md; a time in brackets is not published itself."""
    seconds, found = row.seconds or row.derived, step(row.texts).seconds
    errors = [f"{100 * (one / seconds - 1):+.1f}" for one in (found.low, found.high)]
    published = f"{seconds:.4g} s" if row.seconds else f"({seconds:.4g} s)"
    predicted = f"{found.low:.4g} s" if found.low == found.high else f"{found.low:.4g} to {found.high:.4g} s"
    error = " to ".join(dict.fromkeys(errors))
    return f"| {row.name} | {row.given} | {published} | {predicted} | {error} % | {row.source} |"
