"""The series names that rules and panels may use, with their labels: exported, recorded, or Prometheus's own."""

from __future__ import annotations

import re

from ibpulse.agent.metrics.page import TABLE
from ibpulse.core.metrics.text import process_registry
from tools.grafana import recording_rules

# series that Prometheus creates itself
PROMETHEUS: dict[str, tuple[str, ...]] = {
    "up": (),
    "scrape_samples_scraped": (),
    "scrape_duration_seconds": (),
    "ALERTS": ("alertname", "alertstate", "severity", "job_id"),
    "ALERTS_FOR_STATE": ("alertname", "severity", "job_id"),
}
TARGET_LABELS = ("cluster", "job", "instance", "node", "pod")
"""Labels that Prometheus adds to every series."""

_SERIES = re.compile(r"(?P<name>(?:\b[a-z_]+:)?\bibpulse_[a-z0-9_]+(?::[a-z0-9]+)?)(?:\{(?P<matchers>[^}]*)\})?")


def labels_of(name: str) -> tuple[str, ...]:
    """The labels of a metric or of a recording, without those that Prometheus adds.

    Raises:
        KeyError: the name is neither exported nor recorded.
    """
    for source in (EXPORTED, RECORDED, PROMETHEUS):
        if name in source:
            return source[name]
    raise KeyError(
        f"{name} is not exported and not recorded; see ibpulse.agent.metrics and tools.grafana.recording_rules"
    )


def check_labels(name: str, labels: set[str]) -> None:
    """Refuse labels that a series does not have.

    Raises:
        KeyError: the name is neither exported nor recorded, or it lacks one of the labels.
    """
    known = labels_of(name)
    if unknown := sorted(labels - set(known)):
        raise KeyError(f"{name} has no label {', '.join(unknown)}; it has {', '.join(known) or 'none'}")


def checked(expr: str) -> str:
    """A PromQL expression; the name and matchers of every ibpulse series in it are checked.

    Raises:
        KeyError: as `check_labels`.
    """
    for series in _SERIES.finditer(expr):
        labels = set(re.findall(r"(\w+)\s*(?:=|!)", series["matchers"] or ""))
        check_labels(series["name"], labels - set(TARGET_LABELS))
    return expr


def level_of(record: str) -> list[str]:
    """The labels that a recording keeps, taken from the first part of its name."""
    return re.findall("job_id|[a-z]+", record.partition(":")[0])


def _exported() -> dict[str, tuple[str, ...]]:
    names = {metric.name: metric.labels for metric in TABLE}
    for metric in TABLE:
        if metric.type == "histogram":
            names[metric.name + "_bucket"] = (*metric.labels, "le")
        if metric.type in ("histogram", "summary"):
            names[metric.name + "_sum"] = names[metric.name + "_count"] = metric.labels
    samples = [sample for family in process_registry().collect() for sample in family.samples]
    return names | {sample.name: tuple(sample.labels) for sample in samples}


def _recorded() -> dict[str, tuple[str, ...]]:
    records = [rule.record for group in recording_rules.GROUPS.values() for rule in group]
    return {record: tuple(label for label in level_of(record) if label not in TARGET_LABELS) for record in records}


EXPORTED = _exported()
RECORDED = _recorded()
