"""Collects files into a dataset; spans, the result, and workers of every collection."""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.errors import ConfigError, DatasetError, RecordingError
from ibpulse.base.installation import how_to_install
from ibpulse.base.text import count_text, file_size_text, moment_text, names_text, percent, split_lines
from ibpulse.base.units import SECOND_NS
from ibpulse.core.recordings import Recording, RecordingExtent, read_extent, save_pieces, scan
from ibpulse.core.recordings.file_format import pa
from ibpulse.core.recordings.files import ticks_per_group
from ibpulse.core.recordings.recording import LATEST_NS, meta_between
from ibpulse.workbench.fleet.dataset import FILES, MISSING, RAW, DatasetStore, Part, make_table
from ibpulse.workbench.fleet.tiers import MAX_VALUES, PartOrigin, PartSummary, finish_part

if TYPE_CHECKING:
    from ibpulse.gateway.nodes.discovery import Discovery  # not for the workers

log = logging.getLogger(__name__)
HOUR_NS = 3_600_000_000_000
MAX_REASON = 500
# the newest samples of a node are not settled yet, and its clock may be behind
SETTLE_NS = 2 * SECOND_NS
CONNECT_SECONDS = 10


def max_samples(ports: int) -> int:
    """The largest number of samples per port in a part."""
    return max(1, MAX_VALUES // (2 * ports))


def cut_span(begin_ns: int, end_ns: int, interval_ns: int, ports: int) -> Iterator[tuple[int, int]]:
    """The parts of the span from `begin_ns` to before `end_ns`, in order: begin and end of each.

    The same span is always cut in the same way, also if its end is a later one.
    """
    longest_ns = max_samples(ports) * interval_ns
    while begin_ns < end_ns:
        until_ns = min(begin_ns // HOUR_NS * HOUR_NS + HOUR_NS, begin_ns + longest_ns, end_ns)
        yield begin_ns, until_ns
        begin_ns = until_ns


@dataclass(frozen=True, slots=True)
class CoveredSpans:
    """The complete parts of a dataset by their nodes, in order: each with the end of its last sample."""

    parts: dict[str, list[tuple[Part, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, store: DatasetStore, job: str, begin_ns: int, end_ns: int) -> CoveredSpans:
        """The parts of a job that may have samples of a span."""
        found = cls()
        for part in store.parts(FILES):
            # no part is longer than an hour
            if part.job == job and begin_ns - HOUR_NS < part.start_ns < end_ns:
                found.add(part, int(store.read_table(FILES, part).column("end_ns")[0].as_py()))
        return found

    def add(self, part: Part, end_ns: int) -> None:
        """Add a part that ends at a time."""
        mine = self.parts.setdefault(part.node, [])
        mine.append((part, end_ns))
        mine.sort(key=lambda one: one[0].start_ns)

    def within(self, node: str, begin_ns: int, end_ns: int) -> list[Part]:
        """The parts of a node with samples of a span."""
        return [part for part, until in self.parts.get(node, ()) if part.start_ns < end_ns and until > begin_ns]

    def left(self, node: str, begin_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        """The spans between two times that are not covered."""
        for part, until_ns in self.parts.get(node, ()):
            if begin_ns < min(part.start_ns, end_ns):
                yield begin_ns, min(part.start_ns, end_ns)
            begin_ns = max(begin_ns, until_ns)
        if begin_ns < end_ns:
            yield begin_ns, end_ns


def settled_span(last_ns: int, now_ns: int) -> tuple[int, int]:
    """The last `last_ns` of the samples that are settled, up to a whole second."""
    end_ns = (now_ns - SETTLE_NS) // SECOND_NS * SECOND_NS
    return end_ns - last_ns, end_ns


def choose_span(last_ns: int | None, begin_ns: int | None, end_ns: int | None, now_ns: int) -> tuple[int, int] | None:
    """The span that these arguments give, in whole seconds; None if they give none."""
    if last_ns:
        return settled_span(last_ns, now_ns)
    if begin_ns is None and end_ns is None:
        return None
    end = settled_span(0, now_ns)[1] if end_ns is None else -(-end_ns // SECOND_NS) * SECOND_NS
    return (begin_ns or 0) // SECOND_NS * SECOND_NS, end


@dataclass(frozen=True, slots=True)
class MissingSpan:
    """A span that was not collected, and the reason."""

    part: Part
    to_ns: int
    reason: str


def write_missing(store: DatasetStore, spans: Iterable[MissingSpan]) -> None:
    """Write the missing spans down, each where the samples of its part would be."""
    for span in spans:
        reason = span.reason[:MAX_REASON]
        row = {"from_ns": [span.part.start_ns], "to_ns": [span.to_ns], "reason": [reason]}
        store.write_table(MISSING, span.part, make_table(MISSING, row))
        log.warning("%s: %s", span.part.node, reason)


@dataclass(slots=True)
class CollectionResult:
    """The result of one collection; `problems` are about files and sources, which belong to no node."""

    written: list[PartSummary] = field(default_factory=list)
    kept: set[Part] = field(default_factory=set)
    missing: list[MissingSpan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add_problem(self, sentence: str) -> None:
        """Record and log a problem."""
        log.warning("%s", sentence)
        self.problems.append(sentence)

    def describe(self) -> str:
        """The result in a sentence or two."""
        lines = ["nothing new was collected"]
        if self.written:
            nodes = {one.part.node for one in self.written}
            seconds = sum(one.seconds for one in self.written)
            observed = sum(one.observed_ratio * one.seconds for one in self.written) / seconds
            tiers, raw = (sum(getattr(one, name) for one in self.written) for name in ("tier_bytes", "raw_bytes"))
            lines = [
                f"collected {count_text(len(self.written), 'part')} of {count_text(len(nodes), 'node')}: "
                f"{seconds / 60:.1f} node-minutes, {percent(observed)} of the samples observed, "
                f"{sum(one.steps for one in self.written)} steps, {file_size_text(raw)} raw and "
                f"{file_size_text(tiers)} in the small tiers"
            ]
        if self.kept:
            lines.append(f"{count_text(len(self.kept), 'part')} had been collected before")
        if self.missing:
            absent = sorted({span.part.node for span in self.missing})
            lines.append(f"something is missing of {count_text(len(absent), 'node')}: {names_text(absent)}")
        return "\n".join(lines)


@contextmanager
def open_workers(processes: int) -> Iterator[Executor]:
    """Workers of this machine; with one, the work runs in a thread of this process."""
    if processes == 1:
        with ThreadPoolExecutor(1, "part") as threads:
            yield threads
        return
    # a fork would copy the locks of other threads; workers import what they need
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin_process) as pool:
        yield pool


def _begin_process() -> None:
    # there is a process for each CPU already
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


@contextmanager
def open_scheduler(address: str) -> Iterator[Executor]:
    """The workers of a Dask scheduler at an address such as `tcp://scheduler:8786`.

    They need ibpulse in the same version, and the dataset at the same place.
    """
    try:
        from distributed import Client  # only where it is asked for
    except ModuleNotFoundError as error:
        missing = f"flag --scheduler: needs distributed, which is not installed; {how_to_install('distributed')}"
        raise ConfigError([missing]) from error
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = (split_lines(str(error)) or [type(error).__name__])[0][:200]
        raise DatasetError(
            f"the scheduler {address} does not answer: {reason}; is `dask scheduler` running there?"
        ) from error
    with client, client.get_executor(pure=False) as executor:
        yield executor


MAX_NAME = 200
# of one file: an hour each, so more than a year
MAX_PARTS = 10_000

FilePart = tuple[Part, int, int]
"""A part of a file: its samples from an index to before another one."""


async def read_labels(discovery: Discovery) -> Mapping[str, Mapping[str, str]]:
    """The labels of the nodes that the sources list, without asking the nodes."""
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
    with tempfile.TemporaryDirectory(prefix="ibpulse-") as folder:
        file = Path(folder) / "part.parquet"
        for (part, first, end), numbered in groupby(_cut_pieces(path, extent, parts), lambda one: one[0]):
            begin_ns, end_ns = (extent.start_ns + tick * extent.meta.interval_ns for tick in (first, end))
            save_pieces(file, meta_between(extent.meta, begin_ns, end_ns), (piece for _, piece in numbered))
            store.copy_in(RAW, part, file)


def _cut_pieces(path: Path, extent: RecordingExtent, parts: Sequence[FilePart]) -> Iterator[tuple[FilePart, Recording]]:
    """The samples of the parts, each with its part, in pieces that become row groups."""
    place, most = 0, ticks_per_group(extent.meta)
    for piece in scan(path):
        for part in parts:
            begin, end = max(0, part[1] - place), min(piece.ticks, part[2] - place)
            yield from ((part, piece.cut(first, min(first + most, end))) for first in range(begin, end, most))
        place += piece.ticks
        if place >= parts[-1][2]:
            return
    raise RecordingError(f"recording {path} has fewer samples than it says; copy it again from its origin")
