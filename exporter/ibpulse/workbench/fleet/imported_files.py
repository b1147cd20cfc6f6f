"""Captures and recordings in files as the raw files of a dataset."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.errors import RecordingError
from ibpulse.core.recordings import Recording, RecordingExtent, read_extent, save_pieces, scan
from ibpulse.core.recordings.recording import meta_between
from ibpulse.core.recordings.writing import ticks_per_group
from ibpulse.workbench.fleet.dataset_schema import RAW, Part
from ibpulse.workbench.fleet.dataset_store import DatasetStore
from ibpulse.workbench.fleet.span_parts import cut_span

# of one file: an hour each, so more than a year
MAX_PARTS = 10_000
OTHERWISE = "copy it again from its origin"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file: its samples from index `first` to before `end`."""

    part: Part
    first: int
    end: int


def plan_file(extent: RecordingExtent, job: str, span: tuple[int, int] | None = None) -> list[FilePart]:
    """The parts of a recording, or of its samples from one wall time to before another.

    Raises:
        RecordingError: they are too many.
    """
    interval_ns = extent.meta.interval_ns
    end_ns = extent.start_ns + extent.ticks * interval_ns
    begin_ns = extent.start_ns
    if span is not None:
        # the first sample at or after the begin
        begin_ns += max(0, -(-(span[0] - begin_ns) // interval_ns)) * interval_ns
        end_ns = min(end_ns, extent.start_ns + max(0, -(-(span[1] - extent.start_ns) // interval_ns)) * interval_ns)
    found: list[FilePart] = []
    while begin_ns < end_ns:
        _, until_ns = next(cut_span(begin_ns, end_ns, interval_ns, len(extent.meta.ports)))
        # the first sample of the next part
        until_ns = extent.start_ns - (extent.start_ns - until_ns) // interval_ns * interval_ns
        first, end = ((time_ns - extent.start_ns) // interval_ns for time_ns in (begin_ns, until_ns))
        if len(found) == MAX_PARTS:
            raise RecordingError(
                f"the recording of {extent.meta.host} has more than {MAX_PARTS} parts; choose a shorter span "
                "with --from and --to"
            )
        found.append(FilePart(Part(job, extent.meta.host, begin_ns), first, end))
        begin_ns = until_ns
    return found


def import_file(place: str, path: Path, parts: Sequence[FilePart]) -> None:
    """Write the raw files of the parts of a recording, which are in order and do not overlap.

    A file that is one part is copied as it is; no part of a file is read twice.

    Raises:
        IbpulseError: the file cannot be read, or the dataset not be written.
    """
    store = DatasetStore(place)
    extent = read_extent(path)
    whole = len(parts) == 1 and (parts[0].first, parts[0].end) == (0, extent.ticks)
    if whole and path.is_file() and path.open("rb").read(4) == b"PAR1":
        store.copy_in(RAW, parts[0].part, path)
        return
    pieces = _Pieces(path)
    with tempfile.TemporaryDirectory(prefix="ibpulse-") as folder:
        for one in parts:
            file = Path(folder) / "part.parquet"
            begin_ns, end_ns = (extent.start_ns + tick * extent.meta.interval_ns for tick in (one.first, one.end))
            meta = meta_between(extent.meta, begin_ns, end_ns)
            save_pieces(file, meta, pieces.between(one.first, one.end, ticks_per_group(meta)))
            store.copy_in(RAW, one.part, file)


class _Pieces:
    """Contiguous pieces, cut anew at given samples; what was passed is gone."""

    def __init__(self, path: Path) -> None:
        self._path, self._pieces = path, scan(path)
        self._held: Recording | None = None
        self._place = 0

    def between(self, first: int, end: int, most: int) -> Iterator[Recording]:
        """The samples from `first` to before `end`, in pieces of at most `most` samples."""
        while self._place < end:
            piece = next(self._pieces, None) if self._held is None else self._held
            if piece is None:
                raise RecordingError(f"recording {self._path} has fewer samples than it says; {OTHERWISE}")
            # up to the first wanted sample nothing is kept
            wanted = self._place >= first
            count = min(piece.ticks, most if wanted else first - self._place, end - self._place)
            self._held = piece.cut(count, piece.ticks) if count < piece.ticks else None
            self._place += count
            if wanted:
                yield piece.cut(0, count)
