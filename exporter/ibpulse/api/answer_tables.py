"""Summaries, events and jobs: as sequences, tables, and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ibpulse.api.notebook_html import document, warning
from ibpulse.api.optional_libraries import import_arrow, import_pandas
from ibpulse.events import Event
from ibpulse.jobs.job_history import JobRecord
from ibpulse.text import count_text, gigabytes, moment_text, names_text, percent, step_text, time_text
from ibpulse.units import MILLISECOND_NS, SECOND_NS

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from ibpulse.api.pictures_of_runs import Picture

Item = TypeVar("Item")
Columns = Mapping[str, list[Any]]
TIMES = ("time", "began", "ended")
ALARMS = ("link-down", "link-flap", "disappeared", "unreadable", "quarantined")


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

    def plot(self) -> Picture:
        """The events over time, a row for each port, device or the node.

        Raises:
            PictureError: matplotlib is not installed, or there are no events.
        """
        from ibpulse.api.timelines import TimelineBar, draw_timeline  # matplotlib is optional

        spans = [
            TimelineBar(event.subject or "node", event.time_ns - event.uncertainty_ns, event.time_ns, event.kind)
            for event in self._events
        ]
        return draw_timeline(spans, "events, with the uncertainty of their times")

    def __repr__(self) -> str:
        return f"<ibpulse.Events: {count_text(len(self), 'event')}>"

    def _repr_html_(self) -> str:
        rows = [
            [
                moment_text(event.time_ns),
                time_text(event.uncertainty_ns / SECOND_NS) if event.uncertainty_ns else "-",
                warning(event.kind) if event.kind in ALARMS else event.kind,
                event.subject or "node",
                event.text,
            ]
            for event in reversed(self._events)
        ]
        left_out = [f"{self.left_out} older ones left out"] if self.left_out else []
        head = ["time, the newest first", "at most earlier", "kind", "subject", ""]
        return document("Events", [count_text(len(self), "event"), *left_out], head, rows)


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

    def plot(self) -> Picture:
        """The ports of each job over time; a job that runs, or whose begin is unknown, reaches the edge.

        Raises:
            PictureError: matplotlib is not installed, or no job has ports.
        """
        from ibpulse.api.timelines import TimelineBar, draw_timeline  # matplotlib is optional

        spans = [
            TimelineBar(str(port), record.began_ns, record.ended_ns, f"job {record.job.claim.id}")
            for record in self._jobs
            for port in record.job.ports
        ]
        return draw_timeline(spans, "jobs, with the ports that they had last")

    def __repr__(self) -> str:
        return f"<ibpulse.Jobs: {count_text(len(self), 'job')}>"

    def _repr_html_(self) -> str:
        rows = [
            [
                record.job.claim.id,
                record.job.claim.scheduler,
                record.job.claim.name or "-",
                names_text(map(str, record.job.ports)) or "-",
                "unknown" if record.began_ns is None else moment_text(record.began_ns),
                "running" if record.ended_ns is None else moment_text(record.ended_ns),
            ]
            for record in self._jobs
        ]
        head = ["job", "scheduler", "name", "ports", "began", "ended"]
        return document("Jobs", [count_text(len(self), "job")], head, rows)


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

    def plot(self) -> Picture:
        """The mean rate of each port, transmit and receive, with the peak of each.

        Raises:
            PictureError: matplotlib is not installed.
        """
        from ibpulse.api.timelines import draw_bars  # matplotlib is optional

        return draw_bars(self.ports, f"{self.place}, {self['window_seconds']:g} s")

    def __repr__(self) -> str:
        length, ports = f"{self['window_seconds']:g} s", count_text(len(self.ports), "port")
        return f"<ibpulse.SpanSummary of {self.place}: {length}, {ports}>"

    def _repr_html_(self) -> str:
        node = self.node
        cv = ", ".join(f"{value:.2f} ({scale})" for scale, value in node["burstiness_cv"].items() if value is not None)
        peak, share = node["bandwidth_peak_bytes_per_second"], node["bandwidth_peak_utilization_ratio"]
        facts = [
            moment_text(self["start_ms"] * MILLISECOND_NS),
            f"{self['window_seconds']:g} s",
            f"active mean {gigabytes(node['bandwidth_active_mean_bytes_per_second'])} GB/s",
            f"peak {gigabytes(peak)} GB/s ({percent(share)} of the line rate)",
            f"duty cycle {percent(node['duty_cycle_ratio'])}",
            f"CV {cv or '-'}",
            f"step {step_text(node['step_period_seconds'])}",
            f"{node['active_rails']} of {node['rails']} rails active",
        ]
        rows = [_summary_row(port) for port in self.ports]
        head = ["port", "state", "transmit GB/s", "receive GB/s", "peak, transmit", "peak, receive", "duty cycle", ""]
        return document(self.place, facts, head, rows)


def _summary_row(port: Mapping[str, Any]) -> list[str]:
    transmit, receive = port["transmit"], port["receive"]
    remark = "idle" if port["rail_idle"] else "slow" if port["rail_slow"] else ""
    return [
        port["port"],
        port["state"],
        gigabytes(transmit["mean_bytes_per_second"]),
        gigabytes(receive["mean_bytes_per_second"]),
        gigabytes(transmit["peak_bytes_per_second"]),
        gigabytes(receive["peak_bytes_per_second"]),
        percent(transmit["duty_cycle_ratio"]),
        warning(remark) if remark else "",
    ]


def _flatten(members: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The members of nested objects, with names such as `transmit_mean_bytes_per_second`."""
    for name, value in members.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{name}_")
        else:
            yield f"{prefix}{name}", value
