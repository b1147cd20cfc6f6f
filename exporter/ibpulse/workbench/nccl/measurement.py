"""One benchmark result, and all results of a file, in SI units. None is what the file does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ibpulse.base.text import count_text

OUT_OF_PLACE, IN_PLACE = "out-of-place", "in-place"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: `size_bytes` of the full array as nccl-tests counts it, `seconds` per operation, rates in bytes/s.

    `size_bytes` of AllGather and ReduceScatter is the sum over the ranks, of all-to-all and SendRecv that of one rank.
    `collective` is a key of `wire_factors.COLLECTIVES`, the name of a point-to-point test, or empty if unknown.
    `wrong` counts elements with a wrong value, None if they were not checked. `operations` is the number of operations
    behind the row. `algorithm` and `protocol` are NCCL's words in lower case, empty if unknown.
    """

    collective: str
    size_bytes: int
    seconds: float | None
    algorithm_bytes_per_second: float | None
    bus_bytes_per_second: float | None
    placement: str = ""
    wrong: float | None = None
    operations: int | None = None
    ranks: int | None = None
    nodes: int | None = None
    algorithm: str = ""
    protocol: str = ""


GRAPHS = "the run used CUDA graphs: how many operations its trains have is not known"


def left_out(count: int, what: str) -> list[str]:
    """The remark about rows that a reader left out, none if there are none."""
    return [f"{count_text(count, what)} left out: not whole, or with an invalid value"] if count else []


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How nccl-tests measures: operations per size and placement, and the sizes of its warm-up.

    `warmups` operations for each of the sizes `first_bytes`, doubled up to `last_bytes`; then for each size and
    placement one operation to synchronise, `iterations` times `aggregated` timed ones and `checks` verified ones.
    """

    first_bytes: int
    last_bytes: int
    warmups: int
    iterations: int
    aggregated: int
    checks: int


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """The results of one run. `form` names its format, `version` that of its writer.

    `ranks` and `nodes` are those of one group; `groups` of them ran in parallel. `complete` is false if the file ends
    early. `remarks` are sentences about what was inferred, repaired or left out.
    """

    path: Path
    form: str
    measurements: tuple[Measurement, ...]
    version: str = ""
    ranks: int | None = None
    nodes: int | None = None
    groups: int = 1
    plan: RunPlan | None = None
    device: str = ""
    directions: int = 1
    link_layer: str = ""
    mtu_bytes: int | None = None
    complete: bool = True
    remarks: tuple[str, ...] = ()


def without_rows(runs: tuple[BenchmarkRun, ...], others: int, what: str) -> tuple[BenchmarkRun, ...]:
    """The runs of a file; the first says how many others have no row."""
    if not runs or not others:
        return runs
    remark = f"{count_text(others, f'further {what}')} of this file left out: without a whole row"
    return (replace(runs[0], remarks=(*runs[0].remarks, remark)), *runs[1:])
