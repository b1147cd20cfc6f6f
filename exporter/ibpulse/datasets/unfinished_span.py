"""The span of a collection that has not ended, so that the next run with the same arguments continues it."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from ibpulse.datasets.dataset_store import DatasetStore
from ibpulse.text import moment_text
from ibpulse.units import SECOND_NS

log = logging.getLogger(__name__)
NOTE = "unfinished.json"
# the newest samples of a node are not settled yet, and its clock may be behind
SETTLE_NS = 2 * SECOND_NS


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

    Raises:
        DatasetError: the note about it cannot be read or written.
    """
    found = _read(store.read_note(NOTE))
    if found is not None and (found.last, found.job) == (wanted.last, wanted.job):
        log.info("continuing with the time before %s, which was not finished", moment_text(found.end_ns))
        return found.begin_ns, found.end_ns
    store.write_note(NOTE, json.dumps(asdict(wanted)).encode())
    return wanted.begin_ns, wanted.end_ns


def end_span(store: DatasetStore) -> None:
    """Note that the span was collected.

    Raises:
        DatasetError: the note cannot be removed.
    """
    store.remove_note(NOTE)


def _read(raw: bytes | None) -> UnfinishedSpan | None:
    if raw is None:
        return None
    try:
        found = TypeAdapter(UnfinishedSpan).validate_json(raw, strict=True)
    except ValidationError:
        return None
    return found if 0 <= found.begin_ns < found.end_ns < 2**63 else None
