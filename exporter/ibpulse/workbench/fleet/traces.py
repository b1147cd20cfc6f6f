"""Traces for Perfetto of recordings, daemons, datasets and jobs of a gateway; samples pass through in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from ibpulse.base.errors import DatasetError, RecordingError
from ibpulse.base.files import write_whole
from ibpulse.base.text import natural_key
from ibpulse.core.client.connection import DaemonConnection, ask_job
from ibpulse.core.recordings import Recording, RecordingMeta, read_meta, scan_part
from ibpulse.core.recordings.perfetto import TracedNode, write_trace
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.workbench.fleet.dataset import FILES, RAW, DatasetStore, Part
from ibpulse.workbench.recorder.from_daemon import recent_pieces
from ibpulse.workbench.reports.span import ReportOptions, choose_part

PIECE_TICKS = 8192
MAX_GAP_NS = 3_600_000_000_000
"""Samples of a node that are further apart are another process."""


def open_sources(
    sources: Iterable[Path | str], job: str, options: ReportOptions, last_ns: int, recent_ns: int
) -> Iterator[TracedNode]:
    """The nodes of files, datasets, and addresses of daemons, or of gateways that have a job; one open at a time.

    Of a file it is the last `last_ns` if that is not 0, of a daemon the last `recent_ns`.
    """
    for source in sources:
        if isinstance(source, str):
            yield from trace_job(source, job, options, recent_ns) if job else trace_daemon(source, options, recent_ns)
        elif source.is_dir():
            yield from trace_dataset(source, job, options)
        else:
            yield trace_file(source, options, last_ns)


def trace_file(path: Path, options: ReportOptions, last_ns: int) -> TracedNode:
    """The part of a recording or a capture that the options select, or its last `last_ns`."""
    extent, first, end = choose_part(path, options, last_ns)
    return TracedNode(extent.meta, scan_part(path, first, end), options.ports)


def trace_daemon(url: str, options: ReportOptions, last_ns: int) -> Iterator[TracedNode]:
    """The last `last_ns` of the daemon at a URL."""
    with closing(DaemonConnection(url)) as connection:
        yield TracedNode(*recent_pieces(connection, last_ns), options.ports)


def trace_job(url: str, job: str, options: ReportOptions, last_ns: int) -> Iterator[TracedNode]:
    """The last `last_ns` of each node of a job of the gateway at a URL, by its ports and on the gateway's clock."""
    with closing(DaemonConnection(url)) as gateway:
        places = ask_job(gateway, job)
    for place in places:
        with closing(DaemonConnection(url.rstrip("/") + place.path)) as connection:
            meta, pieces = recent_pieces(connection, last_ns)
            node = TracedNode(replace(meta, host=place.node), pieces, options.ports or place.ports)
            yield _on_clock(node, place.clock)


def trace_dataset(path: Path, job: str, options: ReportOptions) -> Iterator[TracedNode]:
    """The nodes of a dataset in a directory, on the clock of the machine that collected it."""
    store = DatasetStore(str(path))
    store.check()
    parts = sorted(store.parts(FILES), key=lambda part: (natural_key(part.node), part.start_ns))
    parts = [part for part in parts if job in ("", part.job)]
    if not parts:
        raise DatasetError(f"dataset {path} has no samples{f' of job {job}' if job else ''}; collect some")
    begin_ns = min(part.start_ns for part in parts)
    span = [each and each.in_recording(begin_ns) for each in (options.begin, options.end)]
    for node, mine in groupby(parts, key=lambda part: part.node):
        yield from _dataset_node(store, node, list(mine), options, span[0] or 0, span[1] or 2**63)


def _dataset_node(
    store: DatasetStore, node: str, parts: list[Part], options: ReportOptions, begin_ns: int, end_ns: int
) -> Iterator[TracedNode]:
    runs: list[list[tuple[Path, RecordingMeta]]] = []
    clock, until_ns = None, 0
    for part in parts:
        row = store.read_table(FILES, part).to_pylist()[0]
        place = store.local_path(RAW, part)
        if place is None or row["end_ns"] <= begin_ns or row["start_ns"] >= end_ns:
            continue
        meta = read_meta(place)
        alike = runs and _layout(runs[-1][-1][1]) == _layout(meta) and 0 <= row["start_ns"] - until_ns < MAX_GAP_NS
        if not alike:
            runs.append([])
        runs[-1].append((place, meta))
        until_ns = row["end_ns"]
        if row["clock_bound_ns"] is not None:
            clock = ClockOffset(row["clock_offset_ns"], row["clock_bound_ns"])
    for run in runs:
        events = tuple(event for _, meta in run for event in meta.events)
        meta = replace(run[0][1], host=node, events=events[-4000:])
        pieces = _fill((piece for place, _ in run for piece in scan_part(place)), begin_ns, end_ns)
        yield _on_clock(TracedNode(meta, pieces, options.ports), clock)


def _layout(meta: RecordingMeta) -> tuple[object, ...]:
    return meta.interval_ns, [port.id for port in meta.ports]


def _fill(pieces: Iterable[Recording], begin_ns: int, end_ns: int) -> Iterator[Recording]:
    """The samples of a span, with missing ones between pieces that do not follow each other."""
    next_ns = None
    for piece in pieces:
        interval_ns = piece.meta.interval_ns
        first, end = (-(-(each - piece.start_ns) // interval_ns) for each in (begin_ns, end_ns))
        part = piece.cut(max(0, first), min(max(0, end), piece.ticks))
        while part.ticks and next_ns is not None and part.start_ns - next_ns >= interval_ns:
            shape = (len(piece.meta.ports), 2, min(PIECE_TICKS, (part.start_ns - next_ns) // interval_ns))
            yield Recording(piece.meta, next_ns, np.full(shape, np.nan), np.zeros(shape))
            next_ns += shape[2] * interval_ns
        if part.ticks:
            yield part
            next_ns = part.end_ns


def _on_clock(node: TracedNode, clock: ClockOffset | None) -> TracedNode:
    """The node with its clock corrected, and a note that says so."""
    if clock is None:
        return replace(node, notes=("its clock is not known and not corrected",))
    ahead, bound = clock.offset_ns / 1e6, clock.uncertainty_ns / 1e6
    return replace(node, ahead_ns=clock.offset_ns, notes=(f"clock {ahead:+.2f} ± {bound:.2f} ms, corrected",))


def save_trace(nodes: Iterable[TracedNode], output: Path, active: float) -> int:
    """Write a trace; returns the number of its nodes. Bursts are above `active` bytes per second."""
    names = set[str]()

    def named() -> Iterator[TracedNode]:
        for node in nodes:
            names.add(node.meta.host)
            yield node

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.writelines(write_trace(named(), active))

    write_whole(output, write, RecordingError)
    return len(names)
