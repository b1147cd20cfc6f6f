"""The files of a dataset in a directory or in object storage, each written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibpulse import __version__
from ibpulse.base.errors import DatasetError
from ibpulse.base.text import split_lines
from ibpulse.core.recordings.file_format import pa, pq
from ibpulse.workbench.fleet.dataset_schema import DATASET_VERSION, MAX_ROWS, TIERS, Part, parse_path

MARK, VERSION_MEMBER = "dataset.json", "ibpulse_dataset_version"
MAX_MARK_BYTES = 100_000
COPY_BYTES = 1_000_000
GROUP_ROWS = 65_536
# they put an object in its place when its stream is closed, and cannot rename it without a copy
OBJECT_STORES = ("s3", "gcs", "abfs", "az")
# times increase slowly, and the bytes of rates compress better one by one
_OPTIONS: dict[str, Any] = {"compression": "zstd", "version": "2.6", "use_dictionary": False}


@dataclass(frozen=True, slots=True)
class Place:
    """A file system of pyarrow, and a path in it without a slash at the end."""

    files: Any
    path: str


def find_place(text: str) -> Place:
    """The place of a URI such as `s3://bucket/fleet`, or of a path.

    Raises:
        DatasetError: this installation of pyarrow has no such file system, or the URI is not valid.
    """
    from pyarrow import fs

    try:
        if "://" in text:
            files, path = fs.FileSystem.from_uri(text)
            return Place(files, path.rstrip("/"))
        return Place(fs.LocalFileSystem(), str(Path(text).absolute()))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"{text!r} is not a place for a dataset: {_reason(error)}") from error


class DatasetStore:
    """A dataset at a place."""

    def __init__(self, text: str) -> None:
        """Nothing is read or written yet.

        Raises:
            DatasetError: the text names no place.
        """
        self.text = text
        self._place = find_place(text)

    def begin(self) -> None:
        """Mark the place as a dataset if it is empty.

        Raises:
            DatasetError: it is the place of something else, or of a dataset of another version, or cannot be written.
        """
        from pyarrow import fs

        with self._explained("cannot be written"):
            files = self._place.files
            if files.get_file_info(self._at(MARK)).type == fs.FileType.File:
                self.check()
                return
            if files.get_file_info(fs.FileSelector(self._place.path, allow_not_found=True)):
                raise DatasetError(f"{self.text} is not empty and not a dataset; choose another place")
            if files.type_name not in OBJECT_STORES:
                files.create_dir(self._place.path, recursive=True)
            content = {VERSION_MEMBER: DATASET_VERSION, "ibpulse_version": __version__, "tiers": TIERS}
            self.write_note(MARK, json.dumps(content, indent=2).encode() + b"\n")

    def check(self) -> None:
        """Check that this is a dataset that this version reads.

        Raises:
            DatasetError: it is not.
        """
        raw = self.read_note(MARK)
        if raw is None:
            raise DatasetError(f"{self.text} is not a dataset: it has no {MARK}; name another place")
        try:
            version = json.loads(raw)[VERSION_MEMBER]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DatasetError(f"{self.text} has a {MARK} that is not one of ibpulse; name another place") from error
        if version != DATASET_VERSION:
            shown = repr(version)[:20]
            raise DatasetError(
                f"{self.text} is of version {shown}, this program reads {DATASET_VERSION}; use a newer one"
            )

    def read_note(self, name: str) -> bytes | None:
        """The content of a small file of the dataset itself, None if there is none."""
        with self._explained("cannot be read"):
            try:
                with self._place.files.open_input_stream(self._at(name)) as stream:
                    return bytes(stream.read(MAX_MARK_BYTES))
            except FileNotFoundError:
                return None

    def write_note(self, name: str, content: bytes) -> None:
        """Write a small file of the dataset itself."""
        with self._explained("cannot be written"), self._writing(name) as stream:
            stream.write(content)

    def remove_note(self, name: str) -> None:
        """Remove a small file of the dataset itself, if there is one."""
        with self._explained("cannot be written"):
            try:
                self._place.files.delete_file(self._at(name))
            except FileNotFoundError:
                return

    def has(self, tier: str, part: Part) -> bool:
        """Whether the file of a part exists."""
        from pyarrow import fs

        with self._explained("cannot be read"):
            return bool(self._place.files.get_file_info(self._at(part.path(tier))).type == fs.FileType.File)

    def parts(self, tier: str) -> list[Part]:
        """The parts of which there is a file of a tier, in order of their paths."""
        from pyarrow import fs

        with self._explained("cannot be read"):
            selector = fs.FileSelector(self._at(f"tier={tier}"), recursive=True, allow_not_found=True)
            paths = sorted(found.path for found in self._place.files.get_file_info(selector))
        return [parsed[1] for path in paths if (parsed := parse_path(path)) is not None]

    def write_table(self, tier: str, part: Part, table: Any) -> int:
        """Write the file of a part; returns its size in bytes."""
        columns = [field.name for field in table.schema if pa.types.is_floating(field.type)]
        encoding = dict.fromkeys(columns, "BYTE_STREAM_SPLIT")
        whole = [field.name for field in table.schema if field.name.endswith("_ns")]
        encoding |= dict.fromkeys(whole, "DELTA_BINARY_PACKED")
        words = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
        options = {**_OPTIONS, "use_dictionary": words, "column_encoding": encoding}
        content = pa.BufferOutputStream()
        pq.write_table(table, content, row_group_size=GROUP_ROWS, **options)
        with self._explained("cannot be written"), self._writing(part.path(tier)) as stream:
            stream.write(content.getvalue())
            return int(stream.tell())

    def copy_in(self, tier: str, part: Part, file: Path) -> int:
        """Write the file of a part from a local file; returns its size in bytes."""
        with self._explained("cannot be written"), self._writing(part.path(tier)) as stream, file.open("rb") as source:
            while content := source.read(COPY_BYTES):
                stream.write(content)
            return int(stream.tell())

    def copy_out(self, tier: str, part: Part, file: Path) -> None:
        """Copy the file of a part to a local file."""
        there = self._at(part.path(tier))
        with (
            self._explained("cannot be read"),
            file.open("wb") as into,
            self._place.files.open_input_stream(there) as source,
        ):
            while content := source.read(COPY_BYTES):
                into.write(content)

    def local_path(self, tier: str, part: Part) -> Path | None:
        """The path of the file of a part, None if it is not on this machine."""
        return Path(self._at(part.path(tier))) if self._place.files.type_name == "local" else None

    def read_table(self, tier: str, part: Part) -> Any:
        """The content of the file of a part.

        Raises:
            DatasetError: it cannot be read, or has more rows than a part can have.
        """
        with self._explained("cannot be read"), self._place.files.open_input_file(self._at(part.path(tier))) as file:
            parquet = pq.ParquetFile(file)
            check_rows(self.text, tier, parquet.metadata.num_rows)
            return parquet.read()

    def remove(self, tier: str, part: Part) -> None:
        """Remove the file of a part, if there is one."""
        with self._explained("cannot be written"):
            if self.has(tier, part):
                self._place.files.delete_file(self._at(part.path(tier)))

    def _at(self, path: str) -> str:
        return f"{self._place.path}/{path}"

    @contextmanager
    def _writing(self, path: str) -> Iterator[Any]:
        """A stream into a file that appears only when it is complete."""
        files, there = self._place.files, self._at(path)
        if files.type_name in OBJECT_STORES:
            try:
                with files.open_output_stream(there) as stream:
                    yield stream
            except BaseException:
                # closing has put what there was in its place
                files.delete_file(there)
                raise
            return
        folder, _, name = there.rpartition("/")
        files.create_dir(folder, recursive=True)
        # a name that no reader of the dataset takes for a part of it
        temporary = f"{folder}/_{name}.{secrets.token_hex(4)}.tmp"
        try:
            with files.open_output_stream(temporary) as stream:
                yield stream
            self._sync(temporary)
            files.move(temporary, there)
        except BaseException:
            if files.get_file_info(temporary).is_file:
                files.delete_file(temporary)
            raise

    def _sync(self, path: str) -> None:
        """Have a local file written to disk before it gets its name."""
        if self._place.files.type_name == "local":
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise DatasetError(f"dataset {self.text} {what}: {_reason(error)}") from error


def check_rows(dataset: object, tier: str, rows: int) -> None:
    """Check the number of rows of a part, before it is read.

    Raises:
        DatasetError: there are more than a part can have.
    """
    if rows > MAX_ROWS[tier]:
        raise DatasetError(
            f"dataset {dataset} has a part of {rows} rows in the tier {tier}, more than the {MAX_ROWS[tier]} of an hour"
            "; collect this part again"
        )


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or (split_lines(str(error)) or [type(error).__name__])[0]
    return text[:200]
