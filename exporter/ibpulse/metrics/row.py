"""One row of the table of metrics, and the table itself, which fills as the modules beside this one are imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MetricType = Literal["counter", "gauge", "histogram", "info"]


# rows are keys of caches, so they are compared by identity
@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row: `name` is the name of its samples (of their stem for a histogram), `unit` a suffix of the family name.

    `buckets` are the upper bounds without infinity; a histogram with none takes those of its sampler.
    """

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name of the family in OpenMetrics: without the suffix that its type demands."""
        if self.type == "counter":
            return self.name.removesuffix("_total")
        return self.name.removesuffix("_info") if self.type == "info" else self.name


TABLE: list[Metric] = []


def row(
    name: str,
    kind: MetricType,
    text: str,
    labels: tuple[str, ...] = (),
    unit: str = "",
    buckets: tuple[float, ...] = (),
) -> Metric:
    """A new row of the table."""
    metric = Metric(name, kind, text, labels, unit, buckets)
    TABLE.append(metric)
    return metric


def both(
    name: str,
    kind: MetricType,
    text: str,
    labels: tuple[str, ...] = ("device", "port"),
    unit: str = "",
    buckets: tuple[float, ...] = (),
) -> tuple[Metric, Metric]:
    """A row for transmit and one for receive, in the order of `model.DIRECTIONS`."""
    transmit = row(name.format("transmit"), kind, text.format("transmit"), labels, unit, buckets)
    return transmit, row(name.format("receive"), kind, text.format("receive"), labels, unit, buckets)
