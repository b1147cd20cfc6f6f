"""How a span is cut into parts, and which parts a dataset has already, so that nothing is collected twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ibpulse.workbench.fleet.dataset_schema import FILES, Part
from ibpulse.workbench.fleet.dataset_store import DatasetStore
from ibpulse.workbench.fleet.node_tiers import MAX_VALUES

HOUR_NS = 3_600_000_000_000


def most_samples(ports: int) -> int:
    """The most samples per port in a part."""
    return max(1, MAX_VALUES // (2 * ports))


def cut_span(begin_ns: int, end_ns: int, interval_ns: int, ports: int) -> Iterator[tuple[int, int]]:
    """The parts of the span from `begin_ns` to before `end_ns`, in order: begin and end of each.

    The same span is always cut in the same way, also if its end is a later one.
    """
    longest_ns = most_samples(ports) * interval_ns
    while begin_ns < end_ns:
        until_ns = min(begin_ns // HOUR_NS * HOUR_NS + HOUR_NS, begin_ns + longest_ns, end_ns)
        yield begin_ns, until_ns
        begin_ns = until_ns


@dataclass(frozen=True, slots=True)
class CoveredSpans:
    """The complete parts of a dataset by their nodes: the begin, and the end of the last sample, in order."""

    parts: dict[str, list[tuple[Part, int]]] = field(default_factory=dict)

    @classmethod
    def read(cls, store: DatasetStore, job: str, begin_ns: int, end_ns: int) -> CoveredSpans:
        """Those of a job that may have samples of a span.

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
