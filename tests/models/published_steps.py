"""Published jobs with the utilisation and the step time that their authors give, as inputs of `ibpulse model`.

`seconds` is None where no time of a step is published; `derived` is then the step that follows from other published
figures, with 6 operations per parameter and token, 8 with recomputation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LLAMA = {"model": "llama-3.1-405b", "tp": "8", "pp": "16", "sharding": "zero1", "recompute": "none"}
GPT = {"node": "dgx-a100", "sequence": "2048", "tied": "true", "sharding": "zero1", "recompute": "full"}
FSDP = {"model": "gpt-3-175b", "node": "dgx-a100", "sequence": "2048", "sharding": "fsdp", "recompute": "full"}
A100, H100 = 312e12, 989e12


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """A job as a row of docs/models.md: what is given, and the step."""

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
        {**LLAMA, "nodes": "2048", "sequence": "8192", "global-batch": "2048", "mfu": "0.41"},
        None,
        "arXiv 2407.21783, table 4: 400 TFLOP/s",
        6 * 405e9 * 2048 * 8192 / (16_384 * 400e12),
    ),
    PublishedStep(
        "Llama 3 405B, 8,192 H100",
        "MFU 43 %",
        {**LLAMA, "nodes": "1024", "sequence": "8192", "global-batch": "2048", "mfu": "0.43"},
        None,
        "arXiv 2407.21783, table 4: 430 TFLOP/s",
        6 * 405e9 * 2048 * 8192 / (8192 * 430e12),
    ),
    PublishedStep(
        "Llama 3 405B, 131,072 tokens",
        "MFU 38 %",
        {**LLAMA, "nodes": "2048", "cp": "16", "sequence": "131072", "global-batch": "128", "mfu": "0.38"},
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
