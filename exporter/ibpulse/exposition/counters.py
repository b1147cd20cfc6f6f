"""Which error counter of a snapshot is which metric. It formats nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse import metrics
from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.exposition.lines import Family, Sample, known

_PLACES = {metric.name: place for place, metric in enumerate(metrics.DIAGNOSTIC_COUNTERS)}


def counter_families(snapshot: Snapshot) -> Iterator[Family]:
    """A family per counter, those of the table first and in its order, then what has stopped and what was stalled."""
    ports = [((port.port.device, str(port.port.port)), port) for port in snapshot.counters]
    samples: dict[str, list[Sample]] = {}
    files: dict[str, str] = {}
    for labels, port in ports:
        for counter in port.totals:
            files.setdefault(counter.name, counter.file)
            samples.setdefault(counter.name, []).append((labels, counter.total))
    for name in sorted(samples, key=lambda name: (_PLACES.get(name, len(_PLACES)), name)):
        yield metrics.find_counter(name, files[name]), samples[name]
    yield (
        metrics.PORT_COUNTER_SATURATED,
        [((*labels, counter.file), 1) for labels, port in ports for counter in port.totals if counter.saturated],
    )
    yield metrics.PORT_TRANSMIT_STALLED, known([(labels, port.stalled_ratio) for labels, port in ports])
