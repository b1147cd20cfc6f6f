"""Reads recordings and captures, and directories of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ibpulse.api.optional_libraries import import_arrow, import_pandas
from ibpulse.api.run_report import RunReport
from ibpulse.api.samples import SampledRates
from ibpulse.errors import RecordingError
from ibpulse.pictures.options import Theme, Unit
from ibpulse.pictures.pictures_of_runs import Picture, draw_runs, sum_of_each
from ibpulse.recordings import load
from ibpulse.text import count_text, natural_key

if TYPE_CHECKING:
    import pandas
    import pyarrow

MOST_FILES = 10_000
NODE = "node"
SUFFIX = ".parquet"


def read(path: str | PathLike[str]) -> SampledRates | Dataset:
    """The samples of a recording or a capture; of a directory, a `Dataset` of the recordings in it.

    Only the file formats of ibpulse are read: `ibpulse import` converts logs of other programs.

    >>> ibpulse.read(path).node
    'node7'
    >>> ibpulse.read("nothing.parquet")
    Traceback (most recent call last):
    ibpulse.errors.RecordingError: recording nothing.parquet cannot be read: ...

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
    as sums that were computed from them, are left alone.

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
            if count >= MOST_FILES:
                raise RecordingError(f"directory {self.directory} has more than {MOST_FILES} files; name a part of it")
            self.paths[str(path.relative_to(self.directory)).removesuffix(SUFFIX)] = path
        self.paths = {
            name: self.paths[name] for name in sorted(self.paths, key=natural_key) if self._is_recording(name)
        }
        if not self.paths:
            raise RecordingError(
                f"directory {self.directory} has no recordings; name one with {SUFFIX} files of ibpulse"
            )

    def _is_recording(self, name: str) -> bool:
        from ibpulse.recordings.file_format import KEY, pa, pq  # pyarrow is optional

        try:
            found = pq.read_schema(self.paths[name])
        except (OSError, pa.ArrowException):
            # its error is told when it is read
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
        arrow, tables = import_arrow(), []
        keys = dict.fromkeys(key for name in self for key in self.partition(name))
        for name, samples in self.items():
            table = samples.to_arrow().replace_schema_metadata(None)
            values = {**dict.fromkeys(keys, ""), NODE: samples.node, **self.partition(name)}
            for key, value in values.items():
                column = arrow.DictionaryArray.from_arrays(
                    arrow.repeat(arrow.scalar(0, arrow.int32()), len(table)), arrow.array([value], arrow.string())
                )
                table = table.append_column(key, column)
            tables.append(table)
        return arrow.concat_tables(tables).unify_dictionaries()

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
