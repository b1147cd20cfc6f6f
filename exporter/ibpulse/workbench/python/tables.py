"""Summaries, events and jobs as sequences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from ibpulse.base.errors import IbpulseError
from ibpulse.base.installation import how_to_install
from ibpulse.base.text import count_text
from ibpulse.base.units import SECOND_NS
from ibpulse.core.events import Event
from ibpulse.core.jobs import JobRecord

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
        from ibpulse.core.recordings.file_format import pa  # pyarrow is optional

        columns = {
            name: pa.array(values, pa.timestamp("ns", "UTC") if name in TIMES else None)
            for name, values in self._columns().items()
        }
        return pa.table(columns)

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


class _Items(_Table, Sequence[Item]):
    """A sequence whose slices have the same class."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, place: int) -> Item: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> Item | Self:
        return type(self)(self._items[place]) if isinstance(place, slice) else self._items[place]

    def __len__(self) -> int:
        return len(self._items)


class Events(_Items[Event]):
    """Events by time, the oldest first; docs/events.md explains their kinds.

    `left_out` counts older ones that were too many.
    """

    def __init__(self, events: Iterable[Event], left_out: int = 0) -> None:
        super().__init__(events)
        self.left_out = left_out

    def of(self, *kinds: str) -> Events:
        """Only those of some kinds, such as `link-down`."""
        return Events([event for event in self._items if event.kind in kinds])

    def _columns(self) -> Columns:
        return {
            "time": [event.time_ns for event in self._items],
            "uncertainty_seconds": [event.uncertainty_ns / SECOND_NS for event in self._items],
            **{name: [getattr(event, name) for event in self._items] for name in ("kind", "subject", "text")},
        }

    def __repr__(self) -> str:
        return f"<ibpulse.Events: {count_text(len(self), 'event')}>"


class Jobs(_Items[JobRecord]):
    """Jobs with the ports that they had; docs/jobs.md explains where they come from."""

    def _columns(self) -> Columns:
        claims = [record.job.claim for record in self._items]
        return {
            "job_id": [claim.id for claim in claims],
            **{name: [getattr(claim, name) for claim in claims] for name in ("scheduler", "name", "namespace")},
            "ports": [[str(port) for port in record.job.ports] for record in self._items],
            "began": [record.began_ns for record in self._items],
            "began_uncertainty_seconds": [record.began_uncertainty_ns / SECOND_NS for record in self._items],
            "ended": [record.ended_ns for record in self._items],
            "ended_uncertainty_seconds": [record.ended_uncertainty_ns / SECOND_NS for record in self._items],
        }

    def __repr__(self) -> str:
        return f"<ibpulse.Jobs: {count_text(len(self), 'job')}>"


class SpanSummary(_Table, Mapping[str, Any]):
    """The statistics of one span of time: the members of `/api/v1/summary` (docs/api.md), None if unknown.

    `node` describes the sum over the rails, `ports` each port. The tables have a row for each port.

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

    def flat(self, prefix: str = "") -> dict[str, float]:
        """Every known number under a name of its own, for an experiment tracker; yes and no are 1 and 0.

        >>> numbers = node.summary("1s").flat("net/")
        >>> numbers["net/rails"], numbers["net/mlx5_0.1/transmit_duty_cycle_ratio"] <= 1
        (2.0, True)
        """
        groups = [("", self.node), *((f"{port['port'].replace(':', '.')}/", port) for port in self.ports)]
        return {
            f"{prefix}{group}{name}": float(value)
            for group, members in groups
            for name, value in _flatten(members)
            if isinstance(value, int | float)
        }

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


def import_pandas() -> Any:
    """The module pandas.

    Raises:
        IbpulseError: it is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise IbpulseError(f"to_pandas() needs pandas; {how_to_install('pandas')}, or use to_arrow()") from error
    return pandas
