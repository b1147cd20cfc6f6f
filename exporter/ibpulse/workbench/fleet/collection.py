"""Parts shared by both ways of collecting: spans, the note of an unfinished run, the result, and workers."""

from __future__ import annotations

import json
import logging
import multiprocessing
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter, ValidationError

from ibpulse.base.errors import ConfigError, DatasetError
from ibpulse.base.missing_packages import how_to_install
from ibpulse.base.text import count_text, file_size_text, moment_text, names_text, percent, split_lines
from ibpulse.base.units import SECOND_NS
from ibpulse.core.recordings.file_format import pa
from ibpulse.workbench.fleet.dataset import FILES, MISSING, DatasetStore, Part, make_table
from ibpulse.workbench.fleet.tiers import MAX_VALUES, PartSummary

log = logging.getLogger(__name__)
HOUR_NS = 3_600_000_000_000
MAX_REASON = 500
NOTE = "unfinished.json"
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
        """The parts of a job that may have samples of a span.

        Raises:
            DatasetError: the dataset cannot be read.
        """
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


@dataclass(frozen=True, slots=True)
class UnfinishedSpan:
    """The arguments `--last` and `--job` of a run, and the wall times in ns between which it collects."""

    last: str
    job: str
    begin_ns: int
    end_ns: int


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


def continue_span(store: DatasetStore, wanted: UnfinishedSpan) -> tuple[int, int]:
    """The span to collect: that of the last run if it had the same arguments and did not end, else the one wanted.

    It is noted in the dataset; `store.remove(NOTE)` ends it.

    Raises:
        DatasetError: the note cannot be read or written.
    """
    try:
        found = TypeAdapter(UnfinishedSpan).validate_json(store.read_note(NOTE) or b"", strict=True)
    except ValidationError:
        found = wanted
    same = (found.last, found.job) == (wanted.last, wanted.job) and 0 <= found.begin_ns < found.end_ns < 2**63
    if same and found is not wanted:
        log.info("continuing with the time before %s, which was not finished", moment_text(found.end_ns))
        return found.begin_ns, found.end_ns
    store.write_note(NOTE, json.dumps(asdict(wanted)).encode())
    return wanted.begin_ns, wanted.end_ns


@dataclass(frozen=True, slots=True)
class MissingSpan:
    """A span that was not collected, and the reason."""

    part: Part
    to_ns: int
    reason: str


def write_missing(store: DatasetStore, spans: Iterable[MissingSpan]) -> None:
    """Write the missing spans down, each where the samples of its part would be.

    Raises:
        DatasetError: they cannot be written.
    """
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

    Raises:
        ConfigError: distributed is not installed.
        DatasetError: the scheduler does not answer.
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
