"""The work on one part of a dataset: reads its raw file and writes its small tiers. Runs in any process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ibpulse.base.errors import RecordingError
from ibpulse.core.recordings import read_extent, scan
from ibpulse.core.statistics.clock_offsets import ClockOffset
from ibpulse.workbench.fleet.dataset_columns import make_table
from ibpulse.workbench.fleet.dataset_schema import FILES, RAW, Part
from ibpulse.workbench.fleet.dataset_store import DatasetStore
from ibpulse.workbench.fleet.node_tiers import NodeTiers, PartExtent, TierOptions, compute_tiers

PLACES = ("leaf", "rack", "rank", "stage")
"""The labels of a node that are columns of the tier `files`."""


@dataclass(frozen=True, slots=True)
class PartClock:
    """The clock of a node as it was measured at wall time `measured_ns`; None if unknown."""

    offset: ClockOffset | None = None
    synchronised: bool | None = None
    measured_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PartOrigin:
    """What the samples of a part do not say: where they come from, the clock of the node, and its labels."""

    source: str
    clock: PartClock = PartClock()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartSummary:
    """What was written of a part: the bytes of its raw file and of its small tiers, and what it has."""

    part: Part
    raw_bytes: int
    tier_bytes: int
    seconds: float
    ports: int
    observed_ratio: float
    steps: int


def finish_part(place: str, part: Part, origin: PartOrigin) -> PartSummary:
    """Compute the small tiers of a part from its raw file; the file of the tier `files` is the last one.

    The same part gives the same files, so it may be repeated.

    Raises:
        IbpulseError: the raw file cannot be read, or the tiers cannot be written.
    """
    store = DatasetStore(place)
    with _raw_file(store, part) as path:
        found = read_extent(path)
        extent = PartExtent(found.meta, found.start_ns, found.ticks)
        try:
            tiers = compute_tiers(extent, scan(path), TierOptions(part.job, origin.labels))
        except ValueError as error:
            raise RecordingError(f"recording {path} is damaged: {error}; collect it again") from error
        raw_bytes = path.stat().st_size
    written = sum(store.write_table(tier, part, table) for tier, table in tiers.tables.items())
    written += store.write_table(FILES, part, _file_table(extent, tiers, origin))
    return PartSummary(
        part,
        raw_bytes,
        written,
        extent.ticks * extent.meta.interval_ns / 1e9,
        len(extent.meta.ports),
        tiers.observed_ratio,
        tiers.tables["steps"].num_rows,
    )


@contextmanager
def _raw_file(store: DatasetStore, part: Part) -> Iterator[Path]:
    """The raw file of a part on this machine."""
    here = store.local_path(RAW, part)
    if here is not None:
        yield here
        return
    with tempfile.TemporaryDirectory(prefix="ibpulse-") as folder:
        copy = Path(folder) / "part.parquet"
        store.copy_out(RAW, part, copy)
        yield copy


def _file_table(extent: PartExtent, tiers: NodeTiers, origin: PartOrigin) -> Any:
    meta, clock = extent.meta, origin.clock
    row = {
        "start_ns": extent.start_ns,
        "end_ns": extent.end_ns,
        "interval_ns": meta.interval_ns,
        "resolution_ns": tiers.resolution_ns,
        "samples": extent.ticks,
        "ports": len(meta.ports),
        "rails": tiers.rails,
        "line_rate_bytes_per_second": tiers.line_rate_bytes_per_second,
        "observed_ratio": tiers.observed_ratio,
        "step_groups": tiers.step_groups,
        "source": origin.source,
        "ibpulse_version": meta.ibpulse_version,
        "simulated": meta.simulated,
        "clock_offset_ns": clock.offset.offset_ns if clock.offset else None,
        "clock_bound_ns": clock.offset.uncertainty_ns if clock.offset else None,
        "clock_synchronised": clock.synchronised,
        "clock_measured_ns": clock.measured_ns,
        **{name: origin.labels.get(name) for name in PLACES},
    }
    return make_table(FILES, {name: [value] for name, value in row.items()})
