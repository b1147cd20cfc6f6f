"""Samples of many ports: from a recording, a capture or a running daemon; as a table, a picture, or a report."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from ibpulse.api.answer_tables import Events, Jobs
from ibpulse.api.moments import Time, read_span
from ibpulse.api.optional_libraries import import_arrow, import_pandas
from ibpulse.api.run_report import RunReport
from ibpulse.arrays import Floats
from ibpulse.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.errors import RecordingError
from ibpulse.model import DIRECTIONS
from ibpulse.pictures.options import Statistic, Theme, Unit
from ibpulse.pictures.pictures_of_runs import Picture, draw_runs, picture_run
from ibpulse.recordings import Recording
from ibpulse.recordings.recorded_jobs import trace_holdings
from ibpulse.recordings.recording import meta_between
from ibpulse.reports.comparison import assemble
from ibpulse.reports.run import describe_run
from ibpulse.reports.span import ReportOptions
from ibpulse.text import count_text, duration_text, moment_text
from ibpulse.units import SECOND_NS

if TYPE_CHECKING:
    import pandas
    import pyarrow

Direction = Literal["transmit", "receive", "both"]


class SampledRates:
    """Rates of many ports on a regular grid of wall time, with what is known about the ports.

    Each sample is the mean rate since the previous sample. Missing data is NaN (null in Arrow), never 0.

    >>> samples = ibpulse.read(path)
    >>> samples.ports[:2]
    ('mlx5_0:1', 'mlx5_1:1')
    >>> samples.bytes_per_second.shape == (len(samples.ports), 2, len(samples))
    True
    """

    def __init__(self, recording: Recording, name: str) -> None:
        self.recording = recording
        self.name = name

    @property
    def node(self) -> str:
        """The name of the node, empty if unknown."""
        return self.recording.meta.host

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of the ports, such as `mlx5_0:1`."""
        return tuple(str(port.id) for port in self.recording.meta.ports)

    @property
    def rails(self) -> tuple[str, ...]:
        """The ports that carried the traffic between GPUs, as of the beginning."""
        return tuple(str(port.id) for port in self.recording.meta.ports if port.rail)

    @property
    def interval_seconds(self) -> float:
        """The time between two samples."""
        return self.recording.meta.interval_ns / SECOND_NS

    @property
    def start(self) -> datetime:
        """Time of the first sample, in UTC, cut to microseconds."""
        return _moment(self.recording.start_ns)

    @property
    def end(self) -> datetime:
        """Time at which the next sample would be, in UTC, cut to microseconds."""
        return _moment(self.recording.end_ns)

    @property
    def times(self) -> npt.NDArray[np.datetime64]:
        """Time of each sample in UTC: datetime64[ns] (samples,)."""
        return self.recording.time_ns().view("datetime64[ns]")

    @property
    def bytes_per_second(self) -> Floats:
        """The rates: float64 (ports, 2, samples), transmit before receive, NaN where data is missing."""
        return self.recording.bytes_per_second

    @property
    def simulated(self) -> bool:
        """Whether the ports were those of a simulator or a replay."""
        return self.recording.meta.simulated

    @property
    def events(self) -> Events:
        """What happened within these samples."""
        meta, begin_ns = self.recording.meta, self.recording.start_ns - self.recording.meta.interval_ns
        return Events([event for event in meta.events if begin_ns <= event.time_ns < self.recording.end_ns])

    @property
    def jobs(self) -> Jobs:
        """The jobs that ran within these samples, each with the ports that it had."""
        return Jobs(trace_holdings(self.recording.meta.jobs, self.recording.meta.events))

    def __len__(self) -> int:
        return self.recording.ticks

    def between(self, start: Time | None = None, end: Time | None = None, *, last: str | None = None) -> SampledRates:
        """The samples from `start` to before `end`, or the `last` part, such as `"5s"`.

        A time is a text as in `2026-11-21T12:00:00Z`, or a `datetime` with a time zone. A text such as `"10s"` counts
        from the beginning.

        >>> len(samples.between(last="1s"))
        100
        >>> len(samples.between("1s", "1.5s"))
        50

        Raises:
            ValueError: a time is invalid, or there is no sample between them.
        """
        recording = self.recording
        interval_ns, begin_ns = recording.meta.interval_ns, recording.start_ns - recording.meta.interval_ns
        begin, finish = read_span(begin_ns, recording.end_ns - interval_ns, start, end, last)
        first = max(0, -(-(begin - begin_ns) // interval_ns))
        until = min(recording.ticks, (finish - begin_ns) // interval_ns)
        if first >= until:
            raise ValueError(f"{self.name} has no samples between these times: it is {self._length()} long")
        part = recording.cut(first, until)
        meta = meta_between(recording.meta, part.start_ns, part.end_ns)
        return SampledRates(replace(part, meta=meta), self.name)

    def select(self, *ports: str) -> SampledRates:
        """Only these ports; the name of a device stands for all its ports.

        >>> samples.select("mlx5_0", "mlx5_1:1").ports
        ('mlx5_0:1', 'mlx5_1:1')

        Raises:
            ValueError: there is no such port.
        """
        every = self.recording.meta.ports
        known = {name for port in every for name in (str(port.id), port.device)}
        unknown = [name for name in ports if name not in known]
        if unknown or not ports:
            raise ValueError(f"{self.name} has no port {', '.join(unknown)!r}; it has {', '.join(self.ports)}")
        rows = [row for row, port in enumerate(every) if {str(port.id), port.device} & set(ports)]
        recording = self.recording
        return SampledRates(
            Recording(
                replace(recording.meta, ports=tuple(every[row] for row in rows)),
                recording.start_ns,
                recording.bytes_per_second[rows],
                recording.seconds[rows],
                None if recording.steps is None else recording.steps[rows],
                None if recording.merged is None else recording.merged[rows],
            ),
            self.name,
        )

    def to_arrow(self) -> pyarrow.Table:
        """A table with the columns of a recording's file: a row per port and sample, port by port.

        >>> samples.to_arrow().column_names[:4]
        ['time', 'device', 'port', 'transmit_bytes_per_second']

        Raises:
            RecordingError: pyarrow is not installed.
        """
        arrow = import_arrow()
        from ibpulse.recordings.file_format import encode, schema  # pyarrow is optional

        return arrow.Table.from_batches([encode(self.recording, schema(self.recording.meta))])

    def to_pandas(self, *, wide: bool = False) -> pandas.DataFrame:
        """The table of `to_arrow`, or with `wide` a row per sample and a column per port and direction.

        >>> frame = samples.to_pandas(wide=True)
        >>> frame.columns.names, frame.index.name
        (FrozenList(['port', 'direction']), 'time')
        >>> frame["mlx5_0:1"].columns.tolist()
        ['transmit', 'receive']

        Raises:
            IbpulseError: pandas is not installed.
            RecordingError: pyarrow is not installed, and `wide` is not set.
        """
        library = import_pandas()
        frame: pandas.DataFrame
        if wide:
            columns = library.MultiIndex.from_product([self.ports, DIRECTIONS], names=["port", "direction"])
            index = library.DatetimeIndex(self.times, tz="UTC", name="time")
            frame = library.DataFrame(self.bytes_per_second.reshape(-1, len(self)).T, index=index, columns=columns)
        else:
            frame = self.to_arrow().to_pandas()
        return frame

    def plot(
        self,
        *others: SampledRates,
        kind: Literal["heatmap", "distribution"] = "heatmap",
        unit: Unit = "GB/s",
        direction: Direction = "both",
        statistic: Statistic = "both",
        theme: Theme = "light",
        trim: bool = False,
    ) -> Picture:
        """A picture of these samples, with others next to them on one scale, as `ibpulse render` draws it.

        Raises:
            PictureError: matplotlib is not installed, there are too many others, or a line rate is unknown.
            RecordingError: there is no rail; select ports first.
        """
        chosen = ReportOptions(trim=trim, resamples=1, ports=self._chosen_ports())
        runs = [picture_run(Path(each.name), each.name, each.recording, chosen, direction) for each in (self, *others)]
        levels = {
            "active_bytes_per_second": chosen.thresholds().high,
            "burst_low_bytes_per_second": chosen.thresholds().low,
        }
        return draw_runs(runs, kind, unit=unit, theme=theme, direction=direction, statistic=statistic, **levels)

    def report(
        self,
        *others: SampledRates,
        trim: bool = False,
        active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND,
        resamples: int = 4000,
        seed: int = 0,
    ) -> RunReport:
        """The statistics of these samples, and of others compared with them, as `ibpulse report` prints them.

        >>> report = samples.report(resamples=100)
        >>> report.value("rails") == len(samples.rails)
        True

        Raises:
            RecordingError: there is no rail, or `trim` leaves nothing.
        """
        options = ReportOptions(
            ports=self._chosen_ports(),
            trim=trim,
            active_bytes_per_second=active_bytes_per_second,
            resamples=resamples,
            seed=seed,
        )
        runs = [
            describe_run(Path(each.name), each.recording, options, place) for place, each in enumerate((self, *others))
        ]
        return RunReport(assemble(runs, options))

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a recording that every command of ibpulse, and anything that reads Parquet, can read.

        Raises:
            RecordingError: pyarrow is not installed, the file exists and `force` is not set, or it cannot be written.
        """
        from ibpulse.recordings import save  # pyarrow is optional

        path = Path(path)
        if path.exists() and not force:
            raise RecordingError(f"recording {path} exists; set force=True to replace it, or name another file")
        save(path, self.recording)

    def _chosen_ports(self) -> tuple[str, ...]:
        """The ports that a picture shows if none of them is a rail."""
        return () if self.rails else self.ports

    def _length(self) -> str:
        return duration_text(self.recording.ticks * self.recording.meta.interval_ns)

    def __repr__(self) -> str:
        ports, interval = count_text(len(self.ports), "port"), duration_text(self.recording.meta.interval_ns)
        begin = moment_text(self.recording.start_ns - self.recording.meta.interval_ns)
        marked = " SIMULATED" if self.simulated else ""
        return f"<ibpulse.SampledRates {self.name!r}{marked}: {ports}, {self._length()} every {interval} from {begin}>"


def _moment(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC).replace(microsecond=time_ns % SECOND_NS // 1000)
