"""A row of the table of metrics, and the function that reads its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

MetricType = Literal["counter", "gauge", "histogram", "summary", "info"]
Labels = tuple[str, ...]
Source = TypeVar("Source")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts, the last of which is the total; `bounds` are the finite upper bounds."""

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class CountAndSum:
    """The value of a summary."""

    count: float
    total: float


Value = int | float | Histogram | CountAndSum
Sample = tuple[Labels, Value]


# rows are keys of caches, so they are compared by identity
@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row.

    `name` is the name of the samples (their stem for histograms and summaries) and ends in `unit`. `value` reads the
    value from an item of `subject`; None omits the sample. `buckets` are upper bounds without infinity.
    """

    name: str
    type: MetricType
    help: str
    subject: Subject[Any, Any]
    value: Callable[[Any], Value | None]
    unit: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def labels(self) -> Labels:
        """The names of the labels."""
        return self.subject.labels

    @property
    def family(self) -> str:
        """The name of the family in OpenMetrics, without the suffix that its type implies."""
        if self.type == "counter":
            return self.name.removesuffix("_total")
        return self.name.removesuffix("_info") if self.type == "info" else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Subject(Generic[Source, Item]):
    """A set of items, such as ports, with one sample each: the label names, and the items with their label values.

    Labels in `optional` are left out where they are empty, which is the same to Prometheus.
    """

    labels: Labels
    items: Callable[[Source], Iterable[tuple[Labels, Item]]]
    optional: Labels = ()

    def counter(self, name: str, text: str, value: Callable[[Item], float | None]) -> Metric:
        """A row of a counter."""
        return Metric(name, "counter", text, self, value, _unit_of(name))

    def gauge(self, name: str, text: str, value: Callable[[Item], float | None]) -> Metric:
        """A row of a gauge."""
        return Metric(name, "gauge", text, self, value, _unit_of(name))

    def histogram(
        self, name: str, text: str, value: Callable[[Item], Histogram | None], buckets: tuple[float, ...]
    ) -> Metric:
        """A row of a histogram."""
        return Metric(name, "histogram", text, self, value, _unit_of(name), buckets)

    def summary(self, name: str, text: str, value: Callable[[Item], CountAndSum | None]) -> Metric:
        """A row of a summary without quantiles."""
        return Metric(name, "summary", text, self, value, _unit_of(name))

    def info(self, name: str, text: str) -> Metric:
        """A row that carries its information in the labels; its value is always 1."""
        return Metric(name, "info", text, self, lambda item: 1)


def _unit_of(name: str) -> str:
    """The unit in which the name of a metric ends, if it has one."""
    stem = name.removesuffix("_total")
    return next((unit for unit in ("bytes_per_second", "seconds", "bytes", "ratio") if stem.endswith(f"_{unit}")), "")


def single(read: Callable[[Source], Item]) -> Subject[Source, Item]:
    """A subject without labels: the one item that `read` finds in the source."""
    return Subject((), lambda source: [((), read(source))])


def labelled(label: str, read: Callable[[Source], Iterable[tuple[str, Item]]]) -> Subject[Source, Item]:
    """A subject with one label: the label's values that `read` finds in the source, each with its item."""
    return Subject((label,), lambda source: [((value,), item) for value, item in read(source)])


def read_families(rows: Iterable[Metric], source: object) -> Iterator[tuple[Metric, list[Sample]]]:
    """Yield each row with its samples. The items of a subject are read once for all its rows."""
    items: dict[Subject[Any, Any], list[tuple[Labels, Any]]] = {}
    for metric in rows:
        subject, read = metric.subject, metric.value
        found = items.get(subject)
        if found is None:
            found = items[subject] = list(subject.items(source))
        yield metric, [(labels, value) for labels, item in found if (value := read(item)) is not None]
