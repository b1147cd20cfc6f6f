"""Summaries, events and jobs: as sequences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ibpulse.base.text import count_text
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import Event
from ibpulse.core.jobs.job_history import JobRecord
from ibpulse.workbench.python.optional_libraries import import_arrow, import_pandas

if TYPE_CHECKING:
    import pandas
    import pyarrow

Item = TypeVar("Item")
Columns = Mapping[str, list[Any]]
TIMES = ("time", "began", "ended")


class _Table:
    """Columns that become tables of Arrow and pandas; those named in `TIMES` are nanoseconds since 1970, or None."""

    def _columns(self) -> Columns:
        raise NotImplementedError

    def to_arrow(self) -> pyarrow.Table:
        """A table with a row for each member; times are UTC.

        Raises:
            RecordingError: pyarrow is not installed.
        """
        arrow = import_arrow()
        columns = {
            name: arrow.array(values, arrow.timestamp("ns", "UTC") if name in TIMES else None)
            for name, values in self._columns().items()
        }
        return arrow.table(columns)

    def to_pandas(self) -> pandas.DataFrame:
        """The table of `to_arrow`.

        Raises:
            IbpulseError: pandas is not installed.
        """
        library = import_pandas()
        frame: pandas.DataFrame = library.DataFrame(
            {
                name: library.to_datetime(values, unit="ns", utc=True) if name in TIMES else values
                for name, values in self._columns().items()
            }
        )
        return frame


class Events(_Table, Sequence[Event]):
    """Events by time, the oldest first; docs/events.md explains their kinds.

    `left_out` counts older ones that were too many.
    """

    def __init__(self, events: Iterable[Event], left_out: int = 0) -> None:
        self._events, self.left_out = tuple(events), left_out

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Events: ...
    def __getitem__(self, place: int | slice) -> Event | Events:
        found = self._events[place]
        return found if isinstance(found, Event) else Events(found)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, *kinds: str) -> Events:
        """Only those of some kinds, such as `link-down`."""
        return Events([event for event in self._events if event.kind in kinds])

    def _columns(self) -> Columns:
        return {
            "time": [event.time_ns for event in self._events],
            "uncertainty_seconds": [event.uncertainty_ns / SECOND_NS for event in self._events],
            "kind": [event.kind for event in self._events],
            "subject": [event.subject for event in self._events],
            "text": [event.text for event in self._events],
        }

    def __repr__(self) -> str:
        return f"<ibpulse.Events: {count_text(len(self), 'event')}>"


class Jobs(_Table, Sequence[JobRecord]):
    """Jobs with the ports that they had; docs/jobs.md explains where they come from."""

    def __init__(self, jobs: Iterable[JobRecord]) -> None:
        self._jobs = tuple(jobs)

    @overload
    def __getitem__(self, place: int) -> JobRecord: ...
    @overload
    def __getitem__(self, place: slice) -> Jobs: ...
    def __getitem__(self, place: int | slice) -> JobRecord | Jobs:
        found = self._jobs[place]
        return found if isinstance(found, JobRecord) else Jobs(found)

    def __len__(self) -> int:
        return len(self._jobs)

    def _columns(self) -> Columns:
        claims = [record.job.claim for record in self._jobs]
        return {
            "job_id": [claim.id for claim in claims],
            "scheduler": [claim.scheduler for claim in claims],
            "name": [claim.name for claim in claims],
            "namespace": [claim.namespace for claim in claims],
            "ports": [[str(port) for port in record.job.ports] for record in self._jobs],
            "began": [record.began_ns for record in self._jobs],
            "began_uncertainty_seconds": [record.began_uncertainty_ns / SECOND_NS for record in self._jobs],
            "ended": [record.ended_ns for record in self._jobs],
            "ended_uncertainty_seconds": [record.ended_uncertainty_ns / SECOND_NS for record in self._jobs],
        }

    def __repr__(self) -> str:
        return f"<ibpulse.Jobs: {count_text(len(self), 'job')}>"


class SpanSummary(_Table, Mapping[str, Any]):
    """The statistics of one span of time: the members of `/api/v1/summary` (docs/api.md), None if unknown.

    `node` are those of the sum over the rails, `ports` those of each port. The tables have a row for each port.

    >>> summary = node.summary("1s")
    >>> summary.node["rails"]
    2
    >>> summary.to_pandas()["port"].tolist()
    ['mlx5_0:1', 'mlx5_1:1']
    """

    def __init__(self, members: Mapping[str, Any], place: str) -> None:
        self._members, self.place = members, place

    @property
    def node(self) -> Mapping[str, Any]:
        """The statistics of the sum over the rails, transmit + receive."""
        found: Mapping[str, Any] = self._members["node"]
        return found

    @property
    def ports(self) -> Sequence[Mapping[str, Any]]:
        """The statistics of each port."""
        found: Sequence[Mapping[str, Any]] = self._members["ports"]
        return found

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def _columns(self) -> Columns:
        rows = [dict(_flatten(port)) for port in self.ports]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def __repr__(self) -> str:
        length, ports = f"{self['window_seconds']:g} s", count_text(len(self.ports), "port")
        return f"<ibpulse.SpanSummary of {self.place}: {length}, {ports}>"


def _flatten(members: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The members of nested objects, with names such as `transmit_mean_bytes_per_second`."""
    for name, value in members.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield f"{prefix}{name}", value
