"""Samples of recordings, captures and daemons: as a table, a picture, or a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from ibpulse.base.errors import RecordingError
from ibpulse.base.text import count_text, duration_text, moment_text, natural_key
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS, parse_duration
from ibpulse.base.values import INSTANT, MOMENT
from ibpulse.core.arrays import Floats
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.limits import Limit, PortSigns, describe_signs
from ibpulse.core.model import DIRECTIONS
from ibpulse.core.recordings import Recording, load
from ibpulse.core.recordings.limits import find_recorded_signs
from ibpulse.core.recordings.recording import meta_between, trace_holdings
from ibpulse.core.statistics.signs import NAMES
from ibpulse.workbench.pictures.options import Statistic, Theme, Unit
from ibpulse.workbench.pictures.still import Picture, draw_runs, picture_run, sum_of_each
from ibpulse.workbench.python.tables import Events, Jobs, import_pandas
from ibpulse.workbench.reports.comparison import Report, assemble
from ibpulse.workbench.reports.formats import render_json, render_page, render_text
from ibpulse.workbench.reports.run import describe_run
from ibpulse.workbench.reports.span import ReportOptions

if TYPE_CHECKING:
    import pandas
    import pyarrow


Time = str | datetime
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Direction = Literal["transmit", "receive", "both"]
MAX_FILES = 10_000
NODE = "node"
SUFFIX = ".parquet"


def to_ns(time: Time, begin_ns: int | None = None) -> int:
    """A wall time in nanoseconds since 1970; with `begin_ns`, a duration counts from there.

    Raises:
        ValueError: it is not a time, or a `datetime` without a time zone.
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{time} has no time zone; write datetime(..., tzinfo=UTC)")
        # a pandas.Timestamp is a datetime, and knows nanoseconds
        nanoseconds = getattr(time, "value", None)
        return nanoseconds if isinstance(nanoseconds, int) else (time - _EPOCH) // timedelta(microseconds=1) * 1000
    if not isinstance(time, str):
        raise ValueError(f"{time!r} is not a time; give a text like '2026-11-21T12:00:00Z', or a datetime")  # noqa: TRY004
    return INSTANT.parse(time) if begin_ns is None else MOMENT.parse(time).in_recording(begin_ns)


def read_span(begin_ns: int, end_ns: int, start: Time | None, end: Time | None, last: str | None) -> tuple[int, int]:
    """The part of a span of wall time that arguments choose, in nanoseconds since 1970.

    Raises:
        ValueError: a time is invalid, or `last` is combined with `start`.
    """
    finish = end_ns if end is None else to_ns(end, begin_ns)
    if last is None:
        return (begin_ns if start is None else to_ns(start, begin_ns)), finish
    if start is not None:
        raise ValueError("last cannot be combined with start; give last and end, or start and end")
    return finish - parse_duration(last), finish


def span_query(last: str | None, start: Time | None, end: Time | None) -> list[tuple[str, str | int]]:
    """The parameters of a request; times are widened to milliseconds.

    Raises:
        ValueError: as `read_span`.
    """
    if last is not None:
        if start is not None or end is not None:
            raise ValueError("last cannot be combined with start or end; it is the most recent part")
        parse_duration(last)
        return [("last", last)]
    query: list[tuple[str, str | int]] = []
    if start is not None:
        query.append(("from", to_ns(start) // MILLISECOND_NS))
    if end is not None:
        query.append(("to", -(-to_ns(end) // MILLISECOND_NS)))
    return query


class RunReport:
    """Statistics of recordings side by side; changes are relative to the first one. docs/report-rows.md has the rows.

    `str(report)` is the text that `ibpulse report` prints.
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the recordings."""
        return self._report.names

    def value(self, key: str, recording: int = 0) -> float | int | str | tuple[str, ...] | None:
        """A statistic by its key in docs/report-rows.md, in base units; None if unknown.

        Raises:
            KeyError: there is no such statistic.
        """
        return self._report.runs[recording].values[key]

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each statistic, indexed by its key: section, label, unit, and a column for each recording.

        With several recordings also `change NAME` (value ÷ that of the first - 1) and `differs NAME` (whether the
        change is statistically significant).

        Raises:
            IbpulseError: pandas is not installed.
        """
        report = self._report
        table: dict[str, list[object]] = {
            "section": [row.section for row in report.rows],
            "label": [row.label for row in report.rows],
            "unit": [row.unit for row in report.rows],
        }
        for name, run in zip(report.names, report.runs, strict=True):
            table[name] = [run.values[row.key] for row in report.rows]
        for name, changes in zip(report.names[1:], report.changes, strict=True):
            found = [changes.by_key.get(row.key) for row in report.rows]
            table[f"change {name}"] = [each and each.ratio for each in found]
            table[f"differs {name}"] = [bool(each and each.differs) for each in found]
        library, keys = import_pandas(), [row.key for row in report.rows]
        frame: pandas.DataFrame = library.DataFrame(table, index=library.Index(keys, name="key"))
        return frame

    def to_json(self) -> str:
        """The JSON that `ibpulse report --format=json` prints."""
        return render_json(self._report)

    def to_html(self) -> str:
        """The page that `ibpulse report --format=html` prints.

        Raises:
            IbpulseError: jinja2 is not installed.
        """
        return render_page(self._report)

    def __str__(self) -> str:
        return render_text(self._report)

    def __repr__(self) -> str:
        return f"<ibpulse.RunReport of {', '.join(self.names)}; print() shows it>"


class SampledRates:
    """Rates of many ports on a regular grid of wall time, with a description of the ports.

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
        """The events within these samples."""
        meta, begin_ns = self.recording.meta, self.recording.start_ns - self.recording.meta.interval_ns
        return Events([event for event in meta.events if begin_ns <= event.time_ns < self.recording.end_ns])

    @property
    def jobs(self) -> Jobs:
        """The jobs that ran within these samples, each with the ports that it had."""
        return Jobs(trace_holdings(self.recording.meta.jobs, self.recording.meta.events))

    @property
    def signs(self) -> Mapping[str, npt.NDArray[np.str_]]:
        """The sign of what limited transmit at each sample, by rail, as in docs/congestion.md; empty if none is sent.

        Only rails are in it whose congestion counters were recorded.
        """
        names = np.array(NAMES)
        return {port.name: names[port.signs.of_samples()] for port in self._port_signs()}

    def limits(self) -> list[Limit]:
        """Each sign with its share of the time in which the rails transmit, and a sentence with its evidence."""
        return describe_signs(self._port_signs())

    def _port_signs(self) -> list[PortSigns]:
        rows = [row for row, port in enumerate(self.recording.meta.ports) if port.rail]
        return find_recorded_signs(self.recording, rows, ACTIVE_BYTES_PER_SECOND)

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
        """Only these ports; the name of a device selects all its ports.

        >>> samples.select("mlx5_0", "mlx5_1:1").ports
        ('mlx5_0:1', 'mlx5_1:1')

        Raises:
            ValueError: there is no such port.
        """
        every = self.recording.meta.ports
        rows, unknown = self.recording.meta.named_rows(ports)
        if unknown or not ports:
            raise ValueError(f"{self.name} has no port {', '.join(unknown)!r}; it has {', '.join(self.ports)}")
        recording = self.recording
        return SampledRates(
            Recording(
                replace(recording.meta, ports=tuple(every[row] for row in rows)),
                recording.start_ns,
                recording.bytes_per_second[rows],
                recording.seconds[rows],
                None if recording.steps is None else recording.steps[rows],
                None if recording.merged is None else recording.merged[rows],
                tuple(recording.every_signals[row] for row in rows),
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
        from ibpulse.core.recordings.file_format import encode, pa, schema  # pyarrow is optional

        return pa.Table.from_batches([encode(self.recording, schema(self.recording.meta))])

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
        return draw_runs(runs, kind, unit=unit, theme=theme, direction=direction, statistic=statistic)

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
        from ibpulse.core.recordings import save  # pyarrow is optional

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


def read(path: str | PathLike[str]) -> SampledRates | Dataset:
    """The samples of a recording or a capture; of a directory, a `Dataset` of the recordings in it.

    Only the file formats of ibpulse are read: `ibpulse import` converts logs of other programs.

    >>> ibpulse.read(path).node
    'node7'
    >>> ibpulse.read("nothing.parquet")
    Traceback (most recent call last):
    ibpulse.base.errors.RecordingError: recording nothing.parquet cannot be read: ...

    Raises:
        RecordingError: pyarrow is not installed, the file is not a recording, is damaged, or does not fit in memory.
    """
    place = Path(path)
    if place.is_dir():
        return Dataset(place)
    return SampledRates(load(place), place.name.removesuffix(SUFFIX))


class Dataset(Mapping[str, SampledRates]):
    """The recordings in a directory and below, by name; each is read when it is asked for.

    Directories named `KEY=VALUE`, as in `node=gpu-7`, become columns of the tables. Parquet files without samples, such
    as sums that were computed from them, are ignored.

    >>> dataset = ibpulse.read(folder)
    >>> list(dataset)
    ['node=gpu-1/run', 'node=gpu-2/run']
    >>> dataset["node=gpu-1/run"].ports == samples.ports
    True
    >>> dataset.to_arrow().column_names[-1]
    'node'
    """

    def __init__(self, directory: str | PathLike[str]) -> None:
        """List the recordings.

        Raises:
            RecordingError: there is none, or there are more than 10,000 files.
        """
        self.directory = Path(directory)
        self.paths: dict[str, Path] = {}
        for count, path in enumerate(self.directory.rglob(f"*{SUFFIX}")):
            if count >= MAX_FILES:
                raise RecordingError(f"directory {self.directory} has more than {MAX_FILES} files; name a part of it")
            self.paths[str(path.relative_to(self.directory)).removesuffix(SUFFIX)] = path
        self.paths = {
            name: self.paths[name] for name in sorted(self.paths, key=natural_key) if self._is_recording(name)
        }
        if not self.paths:
            raise RecordingError(
                f"directory {self.directory} has no recordings; name one with {SUFFIX} files of ibpulse"
            )

    def _is_recording(self, name: str) -> bool:
        from ibpulse.core.recordings.file_format import KEY, pa, pq  # pyarrow is optional

        try:
            found = pq.read_schema(self.paths[name])
        except (OSError, pa.ArrowException):
            # reading it reports the error
            return True
        return KEY in (found.metadata or {})

    def __getitem__(self, name: str) -> SampledRates:
        return SampledRates(load(self.paths[name]), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def partition(self, name: str) -> dict[str, str]:
        """The parts `KEY=VALUE` of the path of a recording."""
        pairs = (part.partition("=") for part in Path(name).parts[:-1])
        return {key: unquote(value) for key, sign, value in pairs if key and sign}

    def to_arrow(self) -> pyarrow.Table:
        """The tables of all recordings, one after another, with a column for each key of the paths, and the `node`.

        Raises:
            RecordingError: pyarrow is not installed, or a file cannot be read.
        """
        from ibpulse.core.recordings.file_format import pa  # pyarrow is optional

        tables = []
        keys = dict.fromkeys(key for name in self for key in self.partition(name))
        for name, samples in self.items():
            table = samples.to_arrow().replace_schema_metadata(None)
            values = {**dict.fromkeys(keys, ""), NODE: samples.node, **self.partition(name)}
            for key, value in values.items():
                table = table.append_column(key, pa.repeat(value, len(table)).dictionary_encode())
            tables.append(table)
        return pa.concat_tables(tables).unify_dictionaries()

    def to_pandas(self, *, wide: bool = False) -> pandas.DataFrame:
        """The table of `to_arrow`; with `wide` a row per time and a column per recording, port and direction.

        Raises:
            IbpulseError: pandas or pyarrow is not installed, or a file cannot be read.
        """
        library = import_pandas()
        frame: pandas.DataFrame
        if wide:
            frames = {name: samples.to_pandas(wide=True) for name, samples in self.items()}
            frame = library.concat(frames, axis="columns", names=["recording"], sort=True)
        else:
            frame = self.to_arrow().to_pandas()
        return frame

    def report(self, *, trim: bool = False, resamples: int = 4000) -> RunReport:
        """The statistics of all recordings side by side; changes are relative to the first one.

        Raises:
            RecordingError: as `SampledRates.report`, or a file cannot be read.
        """
        first, *others = self.values()
        return first.report(*others, trim=trim, resamples=resamples)

    def plot(self, *, unit: Unit = "GB/s", theme: Theme = "light") -> Picture:
        """A heatmap of all nodes: a row for each recording, the sum over its rails.

        Raises:
            PictureError: matplotlib is not installed, or the recordings have different intervals.
            RecordingError: a file cannot be read, or a recording has no rail.
        """
        run = sum_of_each({name: samples.recording for name, samples in self.items()}, self.directory.name)
        return draw_runs([run], "heatmap", unit=unit, theme=theme, row="node", total="sum of all nodes:")

    def __repr__(self) -> str:
        return f"<ibpulse.Dataset {str(self.directory)!r}: {count_text(len(self), 'recording')}>"
