"""Collects captures and recordings in files into a dataset."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.errors import DatasetError, RecordingError
from ibpulse.base.text import moment_text
from ibpulse.core.recordings import Recording, RecordingExtent, read_extent, save_pieces, scan
from ibpulse.core.recordings.recording import LATEST_NS, meta_between
from ibpulse.core.recordings.writing import ticks_per_group
from ibpulse.workbench.fleet.collection import CollectionResult, CoveredSpans, cut_span
from ibpulse.workbench.fleet.dataset import RAW, DatasetStore, Part
from ibpulse.workbench.fleet.tiers import PartOrigin, PartSummary, finish_part

if TYPE_CHECKING:
    from ibpulse.gateway.nodes.discovery import Discovery  # not for the workers

MAX_NAME = 200
# of one file: an hour each, so more than a year
MAX_PARTS = 10_000

FilePart = tuple[Part, int, int]
"""A part of a file: its samples from an index to before another one."""


async def read_labels(discovery: Discovery) -> Mapping[str, Mapping[str, str]]:
    """The labels of the nodes that the sources list, without asking the nodes.

    Raises:
        DatasetError: a source cannot be read.
    """
    try:
        await discovery.refresh()
        if discovery.problems:
            raise DatasetError("; ".join(discovery.problems))
        return {target.name: target.labels for target in discovery.targets}
    finally:
        await discovery.close()


def collect_files(
    store: DatasetStore,
    files: Sequence[Path],
    copying: Executor,
    computing: Executor,
    *,
    job: str = "",
    span: tuple[int, int] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> CollectionResult:
    """Collect files, or their samples from one wall time to before another.

    `copying` writes the raw files, on this machine, and `computing` their small tiers. `job` is the id of their job,
    empty if there is none, and `labels` are those of nodes by their names. A file that cannot be read is a problem of
    the result, and the others are collected.

    Raises:
        DatasetError: the dataset cannot be read or written.
    """
    result = CollectionResult()
    covered = CoveredSpans.read(store, job, *(span or (0, LATEST_NS)))
    copies: dict[Future[None], tuple[Path, list[FilePart]]] = {}
    for path in files:
        try:
            extent = read_extent(path)
            planned = _plan(extent, job, span)
        except RecordingError as error:
            result.add_problem(str(error))
            continue
        if not 0 < len(extent.meta.host) <= MAX_NAME:
            text = f"{path}: the name of its node has {len(extent.meta.host)} characters, so it is left out"
            result.add_problem(text)
        elif parts := _choose_new(path, extent, planned, covered, result):
            copies[copying.submit(_import_file, store.text, path, parts)] = path, parts
    stages: dict[Future[PartSummary], Path] = {}
    for copy in as_completed(copies):
        path, parts = copies[copy]
        try:
            copy.result()
        except RecordingError as error:
            result.add_problem(str(error))
            continue
        for part, _, _ in parts:
            origin = PartOrigin(str(path), (labels or {}).get(part.node, {}))
            stages[computing.submit(finish_part, store.text, part, origin)] = path
    for stage in as_completed(stages):
        try:
            result.written.append(stage.result())
        except RecordingError as error:
            result.add_problem(f"{stages[stage]}: {error}")
    return result


def _plan(extent: RecordingExtent, job: str, span: tuple[int, int] | None) -> list[FilePart]:
    """The parts of a recording, or of its samples in a span.

    Raises:
        RecordingError: they are too many.
    """
    start_ns, interval_ns, host = extent.start_ns, extent.meta.interval_ns, extent.meta.host

    def index(time_ns: int) -> int:
        """Of the first sample at or after a time."""
        return min(extent.ticks, max(0, -(-(time_ns - start_ns) // interval_ns)))

    first, end = (0, extent.ticks) if span is None else map(index, span)
    found: list[FilePart] = []
    while first < end:
        if len(found) == MAX_PARTS:
            raise RecordingError(
                f"the recording of {host} has more than {MAX_PARTS} parts; choose a shorter span with --from and --to"
            )
        begin_ns = start_ns + first * interval_ns
        _, until_ns = next(cut_span(begin_ns, start_ns + end * interval_ns, interval_ns, len(extent.meta.ports)))
        found.append((Part(job, host, begin_ns), first, index(until_ns)))
        first = index(until_ns)
    return found


def _choose_new(
    path: Path, extent: RecordingExtent, planned: Sequence[FilePart], covered: CoveredSpans, result: CollectionResult
) -> list[FilePart]:
    """The parts that are not in the dataset. Of files of one node that overlap, the first one counts."""
    new = []
    for part, first, end in planned:
        end_ns = extent.start_ns + end * extent.meta.interval_ns
        others = covered.within(part.node, part.start_ns, end_ns)
        if others == [part]:
            result.kept.add(part)
        elif others:
            begin = moment_text(part.start_ns)
            text = f"{path}: samples of {part.node} from {begin} on are there already, so they are left out"
            result.add_problem(text)
        else:
            covered.add(part, end_ns)
            new.append((part, first, end))
    return new


def _import_file(place: str, path: Path, parts: Sequence[FilePart]) -> None:
    """Write the raw files of the parts of a recording, which are in order and do not overlap.

    A file that is one part is copied as it is; no part of a file is read twice.

    Raises:
        IbpulseError: the file cannot be read, or the dataset not be written.
    """
    store = DatasetStore(place)
    extent = read_extent(path)
    part, *indices = parts[0]
    if indices == [0, extent.ticks] and path.is_file() and path.open("rb").read(4) == b"PAR1":
        store.copy_in(RAW, part, path)
        return
    pieces = _Pieces(path)
    with tempfile.TemporaryDirectory(prefix="ibpulse-") as folder:
        for part, first, end in parts:
            file = Path(folder) / "part.parquet"
            begin_ns, end_ns = (extent.start_ns + tick * extent.meta.interval_ns for tick in (first, end))
            meta = meta_between(extent.meta, begin_ns, end_ns)
            save_pieces(file, meta, pieces.between(first, end, ticks_per_group(meta)))
            store.copy_in(RAW, part, file)


class _Pieces:
    """Contiguous pieces, cut at other samples; what was passed cannot be read again."""

    def __init__(self, path: Path) -> None:
        self._path, self._pieces = path, scan(path)
        self._held: Recording | None = None
        self._place = 0

    def between(self, first: int, end: int, most: int) -> Iterator[Recording]:
        """The samples from `first` to before `end`, in pieces of at most `most` samples."""
        while self._place < end:
            piece = next(self._pieces, None) if self._held is None else self._held
            if piece is None:
                text = f"recording {self._path} has fewer samples than it says; copy it again from its origin"
                raise RecordingError(text)
            # up to the first wanted sample nothing is kept
            wanted = self._place >= first
            count = min(piece.ticks, most if wanted else first - self._place, end - self._place)
            self._held = piece.cut(count, piece.ticks) if count < piece.ticks else None
            self._place += count
            if wanted:
                yield piece.cut(0, count)
