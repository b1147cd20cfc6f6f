"""Reads and writes the files of a dataset of many nodes: the columns of each tier, and their paths.

Times are wall times of the node in integer nanoseconds since the epoch. A column that may be null is so where the value
is not known; missing data is never 0. The keys of the path (`job`, `date`, `hour`, `node`) are not columns.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ibpulse import __version__
from ibpulse.base.errors import DatasetError
from ibpulse.base.text import split_lines
from ibpulse.base.units import SECOND_NS
from ibpulse.core.recordings.file_format import pa, pq
from ibpulse.core.recordings.recording import MAX_PORTS

DATASET_VERSION = 1
RAW, NODE_SUMS, RAIL_SECONDS, STEPS, FILES, MISSING = "raw", "node10ms", "rails1s", "steps", "files", "missing"
TIERS = (RAW, NODE_SUMS, RAIL_SECONDS, STEPS, FILES, MISSING)
NO_JOB = "__HIVE_DEFAULT_PARTITION__"
"""The value of the key `job` where no job was chosen; readers of Hive partitions give null."""
_PATH = re.compile(
    r"(?:.*/)?tier=([^/]*)/job=([^/]*)/date=[^/]*/hour=[^/]*/node=([^/]*)/part-([0-9]+)\.parquet", re.DOTALL
)
PLACES = ("leaf", "rack", "rank", "stage")
"""The labels of a node that are columns of the tier `files`."""
EDGES = ("begin", "transmit_first", "receive_first", "transmit_end", "receive_end")
"""The edges of a step: the end of the traffic before it, and first edge and end of the last burst of each direction."""

MARK, VERSION_MEMBER = "dataset.json", "ibpulse_dataset_version"
MAX_MARK_BYTES = 100_000
COPY_BYTES = 1_000_000
GROUP_ROWS = 65_536
# they put an object in its place when its stream is closed, and cannot rename it without a copy
OBJECT_STORES = ("s3", "gcs", "abfs", "az")

_WORD, _WHOLE, _SMALL, _TIME = pa.dictionary(pa.int16(), pa.string()), pa.int32(), pa.int16(), pa.int64()
RATES = ("transmit_bytes_per_second", "receive_bytes_per_second")


def _known(kind: Any, *names: str) -> list[Any]:
    return [pa.field(name, kind, nullable=False) for name in names]


def _maybe(kind: Any, *names: str) -> list[Any]:
    return [pa.field(name, kind) for name in names]


def _edge(name: str) -> list[Any]:
    """The time of an edge, its largest possible error, and whether it is an estimate from a plateau.

    If it is not, it is only the middle of the times that are possible. All three are null if nothing is known.
    """
    return _maybe(_TIME, f"{name}_ns", f"{name}_bound_ns") + _maybe(pa.bool_(), f"{name}_resolved")


SCHEMAS = {
    # the sums over the compute ports that were observed, for every sample
    NODE_SUMS: pa.schema(
        _known(_TIME, "time_ns") + _maybe(pa.float32(), *RATES) + _known(_SMALL, "rails_observed", "rails")
    ),
    # each compute port for every second; `time_ns` is its begin
    RAIL_SECONDS: pa.schema(
        _known(_TIME, "time_ns")
        + _known(_WORD, "port")
        + _maybe(pa.float32(), *RATES, "transmit_peak_bytes_per_second", "receive_peak_bytes_per_second")
        + _known(pa.float32(), "observed_ratio")
    ),
    # each step of each group of ports with one owner, one stage and one rhythm
    STEPS: pa.schema(
        _known(_SMALL, "group")
        + _known(_WORD, "ports")
        + _maybe(_WORD, "owner", "stage")
        + _known(_WHOLE, "step")
        + [field for name in EDGES for field in _edge(name)]
        + _maybe(_TIME, "end_ns")
        + _known(pa.float64(), "transmit_bytes", "receive_bytes")
        + _maybe(pa.float32(), "silent_ratio")
        + _known(pa.float32(), "missing_ratio")
        + _known(_WHOLE, "bridged_samples")
    ),
    # one row for each file of the tier `raw`; written last, so a part without it is not complete
    FILES: pa.schema(
        _known(_TIME, "start_ns", "end_ns", "interval_ns", "resolution_ns", "samples")
        + _known(_SMALL, "ports", "rails")
        + _maybe(pa.float64(), "line_rate_bytes_per_second")
        + _known(pa.float32(), "observed_ratio")
        + _known(_SMALL, "step_groups")
        + _known(pa.string(), "source", "ibpulse_version")
        + _known(pa.bool_(), "simulated")
        + _maybe(_TIME, "clock_offset_ns", "clock_bound_ns")
        + _maybe(pa.bool_(), "clock_synchronised")
        + _maybe(_TIME, "clock_measured_ns")
        + _maybe(pa.string(), *PLACES)
    ),
    # spans without collected samples, and the reason
    MISSING: pa.schema(_known(_TIME, "from_ns", "to_ns") + _known(pa.string(), "reason")),
}

# a part lies within one hour: samples of 1 ms, seconds of each port, and at most one step of 256 groups each second
MAX_ROWS = {
    NODE_SUMS: 3_600_001,
    RAIL_SECONDS: 3_601 * MAX_PORTS,
    STEPS: 3_601 * MAX_PORTS,
    FILES: 1,
    MISSING: 3_600,
}
"""Rows of the file of a part; one with more is not of ibpulse."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of each tier: a node, and a span that begins at wall time `start_ns`, within one hour.

    `job` is empty where no job was chosen.
    """

    job: str
    node: str
    start_ns: int

    def path(self, tier: str) -> str:
        """The path of its file of a tier, relative to the dataset."""
        begin = datetime.fromtimestamp(self.start_ns // SECOND_NS, UTC)
        job = _encode(self.job) if self.job else NO_JOB
        return (
            f"tier={tier}/job={job}/date={begin:%Y-%m-%d}/hour={begin:%H}/node={_encode(self.node)}"
            f"/part-{self.start_ns}.parquet"
        )


def _encode(text: str) -> str:
    """A value as a part of a path: all but letters, digits and `_.-~` is percent-encoded."""
    coded = quote(text, safe="")
    # names of a directory that mean another one
    return coded.replace(".", "%2E") if coded.strip(".") == "" else coded


def parse_path(path: str) -> tuple[str, Part] | None:
    """Tier and part of a file by its path; None if it is not one of a dataset."""
    found = _PATH.fullmatch(path)
    if not found:
        return None
    tier, job, node, number = found.groups()
    return tier, Part("" if job == NO_JOB else unquote(job), unquote(node), int(number))


def make_table(tier: str, columns: Mapping[str, Any]) -> Any:
    """The Arrow table of a tier from columns of one length: numpy arrays or lists.

    NaN, masked values and None are null; Parquet refuses a null in a column that must be known.
    """
    schema = SCHEMAS[tier]
    arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


class DatasetStore:
    """A dataset in a directory, or in object storage by a URI such as `s3://bucket/fleet`.

    Each file is written whole or not at all. Every method raises DatasetError if the dataset cannot be read or written.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            if "://" in text:
                self._files, path = pa.fs.FileSystem.from_uri(text)
            else:
                self._files, path = pa.fs.LocalFileSystem(), str(Path(text).absolute())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{text!r} is not a place for a dataset: {_reason(error)}") from error
        self._path = path.rstrip("/")

    def begin(self) -> None:
        """Mark the place as a dataset if it is empty."""
        with self._explained("cannot be written"):
            if self._files.get_file_info(self._at(MARK)).is_file:
                self.check()
                return
            if self._files.get_file_info(pa.fs.FileSelector(self._path, allow_not_found=True)):
                raise DatasetError(f"{self.text} is not empty and not a dataset; choose another place")
            if self._files.type_name not in OBJECT_STORES:
                self._files.create_dir(self._path, recursive=True)
            content = {VERSION_MEMBER: DATASET_VERSION, "ibpulse_version": __version__, "tiers": TIERS}
            with self._writing(MARK) as stream:
                stream.write(json.dumps(content, indent=2).encode() + b"\n")

    def check(self) -> None:
        """Check that this is a dataset that this version reads."""
        with self._explained("cannot be read"):
            try:
                with self._files.open_input_stream(self._at(MARK)) as stream:
                    raw = stream.read(MAX_MARK_BYTES)
            except FileNotFoundError as error:
                raise DatasetError(f"{self.text} is not a dataset: it has no {MARK}; name another place") from error
        try:
            version = json.loads(raw)[VERSION_MEMBER]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DatasetError(f"{self.text} has a {MARK} that is not one of ibpulse; name another place") from error
        if version != DATASET_VERSION:
            raise DatasetError(
                f"{self.text} is of version {repr(version)[:20]}, this program reads {DATASET_VERSION}; use a newer one"
            )

    def remove(self, path: str) -> None:
        """Remove a file of the dataset, if it exists."""
        with self._explained("cannot be written"):
            try:
                self._files.delete_file(self._at(path))
            except FileNotFoundError:
                return

    def parts(self, tier: str) -> list[Part]:
        """The parts with a file of a tier, in order of their paths."""
        with self._explained("cannot be read"):
            selector = pa.fs.FileSelector(self._at(f"tier={tier}"), recursive=True, allow_not_found=True)
            paths = sorted(found.path for found in self._files.get_file_info(selector))
        return [parsed[1] for path in paths if (parsed := parse_path(path)) is not None]

    def write_table(self, tier: str, part: Part, table: Any) -> int:
        """Write the file of a part; returns its size in bytes."""
        encoding, words = {}, []
        for field in table.schema:
            # times increase slowly, and the bytes of rates compress better one by one
            if field.name.endswith("_ns"):
                encoding[field.name] = "DELTA_BINARY_PACKED"
            elif pa.types.is_floating(field.type):
                encoding[field.name] = "BYTE_STREAM_SPLIT"
            elif pa.types.is_dictionary(field.type):
                words.append(field.name)
        options = {"compression": "zstd", "version": "2.6", "use_dictionary": words, "column_encoding": encoding}
        content = pa.BufferOutputStream()
        pq.write_table(table, content, row_group_size=GROUP_ROWS, **options)
        with self._writing(part.path(tier)) as stream:
            stream.write(content.getvalue())
            return int(stream.tell())

    def copy_in(self, tier: str, part: Part, file: Path) -> int:
        """Write the file of a part from a local file; returns its size in bytes."""
        with self._writing(part.path(tier)) as stream, file.open("rb") as source:
            shutil.copyfileobj(source, stream, COPY_BYTES)
            return int(stream.tell())

    def copy_out(self, tier: str, part: Part, file: Path) -> None:
        """Copy the file of a part to a local file."""
        with (
            self._explained("cannot be read"),
            file.open("wb") as into,
            self._files.open_input_stream(self._at(part.path(tier))) as source,
        ):
            shutil.copyfileobj(source, into, COPY_BYTES)

    def local_path(self, tier: str, part: Part) -> Path | None:
        """The path of the file of a part, None if it is not on this machine."""
        return Path(self._at(part.path(tier))) if self._files.type_name == "local" else None

    def read_table(self, tier: str, part: Part) -> Any:
        """The content of the file of a part."""
        with self._explained("cannot be read"), self._files.open_input_file(self._at(part.path(tier))) as file:
            parquet = pq.ParquetFile(file)
            check_rows(self.text, tier, parquet.metadata.num_rows)
            return parquet.read()

    def _at(self, path: str) -> str:
        return f"{self._path}/{path}"

    @contextmanager
    def _writing(self, path: str) -> Iterator[Any]:
        """A stream into a file that appears only when it is complete."""
        files, target = self._files, self._at(path)
        with self._explained("cannot be written"):
            if files.type_name in OBJECT_STORES:
                try:
                    with files.open_output_stream(target) as stream:
                        yield stream
                except BaseException:
                    # closing has put the incomplete object in its place
                    files.delete_file(target)
                    raise
                return
            folder, _, name = target.rpartition("/")
            files.create_dir(folder, recursive=True)
            # a name that no reader of the dataset takes for a part of it
            temporary = f"{folder}/_{name}.{secrets.token_hex(4)}.tmp"
            try:
                with files.open_output_stream(temporary) as stream:
                    yield stream
                if files.type_name == "local":
                    descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
                files.move(temporary, target)
            except BaseException:
                if files.get_file_info(temporary).is_file:
                    files.delete_file(temporary)
                raise

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"dataset {self.text} {what}: {_reason(error)}") from error


def check_rows(dataset: object, tier: str, rows: int) -> None:
    """Check the number of rows of a part, before it is read."""
    if rows > MAX_ROWS[tier]:
        raise DatasetError(
            f"dataset {dataset} has a part of {rows} rows in the tier {tier}, more than the {MAX_ROWS[tier]} of an hour"
            "; collect this part again"
        )


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or (split_lines(str(error)) or [type(error).__name__])[0]
    return text[:200]
