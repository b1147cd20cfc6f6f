"""Jobs that several tests use."""

from __future__ import annotations

from ibpulse.models.catalogue import Architecture
from ibpulse.models.collectives import Hardware
from ibpulse.models.job import TrainingJob

EIGHT_RAILS = Hardware(8, 47e9, 370e9)
SEVEN_RAILS = Hardware(7, 47e9, 370e9)
DENSE = Architecture("Qwen2.5-7B", 7.6156e9, 28, 3584, "", kv_width=512, vocabulary=152_064)
MOE = Architecture("Mixtral-8x7B", 46.703e9, 32, 4096, "", 1024, 32_000, False, 45.097e9, 32, 8, 2)
MANY_EXPERTS = Architecture("Qwen3-30B-A3B", 30.532e9, 48, 2048, "", 512, 151_936, False, 28.991e9, 48, 128, 8)
TIED = Architecture("tied", 8e9, 32, 4096, "", 1024, 100_000, tied=True)


def known(model: Architecture, nodes: int, **named: object) -> TrainingJob:
    """A job without unknown inputs, so that it has one reading."""
    choices = {
        "algorithm": "ring",
        "dispatch": "alltoall",
        "recompute": "none",
        "reduction": "each",
        "dispatch_bytes": 2.0,
    }
    return TrainingJob(model, nodes, **{**choices, "gradient_bytes": 2, **named})  # type: ignore[arg-type]
