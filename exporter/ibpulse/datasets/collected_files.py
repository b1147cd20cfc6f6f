"""Collects captures and recordings in files into a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.datasets.collection_result import CollectionResult
from ibpulse.datasets.dataset_store import DatasetStore
from ibpulse.datasets.imported_files import FilePart, import_file, plan_file
from ibpulse.datasets.part_stage import PartOrigin, PartSummary, finish_part
from ibpulse.datasets.span_parts import CoveredSpans
from ibpulse.errors import DatasetError, RecordingError
from ibpulse.fleet.discovery import Discovery
from ibpulse.recordings import read_extent
from ibpulse.recordings.recording import LATEST_NS
from ibpulse.text import moment_text

MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class FileCollection:
    """Files to collect: the id of their job or an empty text, the span to take of them or None for all of it, and the
    labels of nodes by their names."""

    files: Sequence[Path]
    job: str = ""
    span: tuple[int, int] | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


async def read_labels(discovery: Discovery) -> Mapping[str, Mapping[str, str]]:
    """The labels of the nodes that the sources list, which are not asked.

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
    store: DatasetStore, wanted: FileCollection, copying: Executor, computing: Executor
) -> CollectionResult:
    """Collect files: `copying` writes the raw files, on this machine, and `computing` their small tiers.

    A file that cannot be read is a problem of the result, and the others go on.

    Raises:
        DatasetError: the dataset cannot be read or written.
    """
    result = CollectionResult()
    span = wanted.span or (0, LATEST_NS)
    plans = _plan(wanted, CoveredSpans.read(store, wanted.job, *span), result)
    copies = {copying.submit(import_file, store.text, path, parts): path for path, parts in plans.items()}
    stages: dict[Future[PartSummary], Path] = {}
    for copy in as_completed(copies):
        path = copies[copy]
        try:
            copy.result()
        except RecordingError as error:
            result.add_problem(str(error))
            continue
        for one in plans[path]:
            origin = PartOrigin(str(path), labels=wanted.labels.get(one.part.node, {}))
            stages[computing.submit(finish_part, store.text, one.part, origin)] = path
    for stage in as_completed(stages):
        try:
            result.written.append(stage.result())
        except RecordingError as error:
            result.add_problem(f"{stages[stage]}: {error}")
    return result


def _plan(wanted: FileCollection, covered: CoveredSpans, result: CollectionResult) -> dict[Path, list[FilePart]]:
    """The parts to write of each file. Of files of one node that overlap, the first one counts."""
    found: dict[Path, list[FilePart]] = {}
    for path in wanted.files:
        try:
            extent = read_extent(path)
            parts = plan_file(extent, wanted.job, wanted.span)
        except RecordingError as error:
            result.add_problem(str(error))
            continue
        node, interval_ns = extent.meta.host, extent.meta.interval_ns
        if not 0 < len(node) <= MAX_NAME:
            result.add_problem(f"{path}: the name of its node has {len(node)} characters, so it is left out")
            continue
        new = []
        for one in parts:
            end_ns = extent.start_ns + one.end * interval_ns
            others = covered.within(node, one.part.start_ns, end_ns)
            if others == [one.part]:
                result.kept.add(one.part)
            elif others:
                begin = moment_text(one.part.start_ns)
                result.add_problem(f"{path}: samples of {node} from {begin} on are there already, so they are left out")
            else:
                covered.add(one.part, end_ns)
                new.append(one)
        if new:
            found[path] = new
    return found
