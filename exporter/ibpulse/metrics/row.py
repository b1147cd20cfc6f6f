"""One row of the table of metrics, the table itself, and the buckets of its histograms."""

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


# fine near idle (0.002 of 400 Gb/s is the default threshold of active) and near full
UTILIZATION_BUCKETS = (0.002, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)

# half a tick of 10 ms above whole numbers of ticks, so that jitter moves no run to another bucket
DURATION_BUCKETS = (0.005, 0.015, 0.025, 0.035, 0.055, 0.105, 0.155, 0.255, 0.505, 1.005, 2.005, 5.005, 15.005, 60.005)
