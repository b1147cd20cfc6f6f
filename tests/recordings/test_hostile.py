"""Files that are no recordings: a sentence with the file and the way out, never anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ibpulse.base import limits
from ibpulse.base.errors import RecordingError
from ibpulse.core.recordings import RecordingWriter, files, load, read_meta, save, scan
from ibpulse.core.recordings.file_format import KEY
from ibpulse.core.statistics.plausible import MAX_STEPS
from tests.recordings.recordings import make_recording, members

PARTS = ((0, 500), (0, 1), (31, 32), (32, 64), (29, 331), (499, 500), (480, 9999))
EVENT = {"time_ns": 1, "kind": "link-up", "subject": "mlx5_0:1", "text": "The link came up."}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save(tmp_path / "a.parquet", make_recording(500))
    return tmp_path / "a.parquet"


def header(**changes: Any) -> bytes:
    """The metadata of a small recording with other members."""
    return json.dumps(members(**changes)).encode()


def of_port(**changes: float) -> bytes:
    """The metadata of a small recording with other numbers of its port."""
    return json.dumps(members(ports=[{"device": "mlx5_0", "port": 1, **changes}])).encode()


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    """The file with another table, its metadata kept."""
    table = pq.read_table(path)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path, **options)


def test_missing_files_and_those_of_other_programs_are_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"recording .*a\.parquet cannot be read: No such file or directory; name"):
        load(tmp_path / "a.parquet")
    pd.DataFrame({"time": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        RecordingError, match="is not a recording of ibpulse: it lacks the metadata ibpulse_recording; "
    ):
        load(tmp_path / "a.parquet")


@pytest.mark.parametrize("begin", [b"time,rate\n", b"PK\3\4", b"\0" * 4096])
def test_a_foreign_file_is_no_recording(tmp_path: Path, begin: bytes) -> None:
    (tmp_path / "a").write_bytes(begin)
    with pytest.raises(RecordingError, match="is not a recording: it is neither a Parquet file nor an Arrow stream"):
        load(tmp_path / "a")


@pytest.mark.parametrize("part", [0.001, 0.3, 0.7, 0.999])
def test_a_file_that_is_cut_off_is_damaged(path: Path, part: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: max(5, int(len(whole) * part))])
    with pytest.raises(RecordingError, match=r"is cut off or damaged: .*; copy it again from its origin"):
        load(path)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"{", "has metadata that is not JSON; copy the file again"),
        (b"\xff", "has metadata that is not JSON"),
        (b"[" * 100_000, "has metadata that is not JSON"),
        (b"[]", "is of version None, this program reads version 1; use a newer ibpulse"),
        (header(ibpulse_recording_version=3), "is of version 3, this program reads version 1"),
        (header(ibpulse_recording_version=True), "is of version True, this program"),
        (header(ports=[]), "invalid metadata: .top level.: 0 ports; a recording has 1"),
        (header(ports=[{"device": "a"}]), "invalid metadata: ports.0.port: is required"),
        (header(interval_ns=-1), "an interval of -1 ns is out of bounds"),
        (of_port(stride=10**10), "invalid metadata: a number of port mlx5_0:1 is out of bounds"),
        (of_port(rate_bytes_per_second=1e-300), "invalid metadata: a number of port mlx5_0:1 is out of bounds"),
        (of_port(resolution_seconds=float("inf")), "invalid metadata: a number of port mlx5_0:1 is out of bounds"),
        (header(interval_ns="10"), "interval_ns: '10' is not a whole number"),
        (header(events=[{}] * 4001), "has 4001 events; at most 4000 are read"),
        (header(events=[{**EVENT, "time_ns": -1}]), "invalid metadata: events: time_ns of an event is not a number"),
        (header(events={**EVENT, "time_ns": "x"}), "has invalid metadata: events: time_ns of an event"),
        (header(events=7), "has invalid metadata: events: an event is not an object"),
        (header(events=[{**EVENT, "before": {"active": 1}}]), "events: active of a port's state is not valid"),
        (header(host="x" * 4_000_001), "has metadata of 4000... bytes; at most 4000000 are read"),
    ],
    ids=range(19),
)
def test_metadata_that_cannot_be_used_is_told(path: Path, raw: bytes, sentence: str) -> None:
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({KEY: raw}), path)
    for read in (load, read_meta):
        with pytest.raises(RecordingError, match=sentence):
            read(path)


def test_members_of_later_times_are_passed_over(path: Path) -> None:
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[KEY])
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps({**about, "mood": "good"})}), path)
    assert load(path) == make_recording(500)


def put(name: str, value: object, kind: pa.DataType | None = None) -> Callable[[pa.Table], pa.Table]:
    """Another column of this name, with the same value in every row."""
    return lambda table: table.set_column(
        table.schema.get_field_index(name), name, pa.array([value] * len(table), kind)
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda table: table.drop_columns(["receive_seconds"]), "lacks the column receive_seconds"),
        (lambda table: table.drop_columns(["device"]), "lacks the column device"),
        (
            put("transmit_seconds", 1.0, pa.float32()),
            "lacks the column transmit_seconds, or has it with another type; use",
        ),
        (lambda table: table.append_column("time", table.column("time")), "lacks the column each column once"),
        (lambda table: table.sort_by("time"), "has its rows in another order than ibpulse writes them; use the file"),
        (lambda table: table.slice(1), "has 999 rows; expected a positive multiple of 2, the number of ports"),
        (lambda table: table.slice(0, 0), "holds no sample; record again, for longer"),
        (put("device", "mlx5_9", pa.dictionary(pa.int32(), pa.string())), "has its rows in another order"),
        (put("port", None, pa.int16()), "has rows without a time or a port; use the file that ibpulse wrote"),
        (put("port", 2, pa.int16()), "has its rows in another order"),
        (put("transmit_bytes_per_second", -1.0), "a rate or its time is negative or not finite"),
        (put("transmit_seconds", 0.01), "a missing sample has a duration"),
        (put("transmit_uncertainty", -0.001, pa.float32()), "has an uncertainty that is negative or not finite"),
        (put("transmit_uncertainty", float("nan"), pa.float32()), "has an uncertainty that is negative or not finite"),
        (put("transmit_uncertainty", float("inf"), pa.float32()), "has an uncertainty that is negative or not finite"),
    ],
)
def test_a_table_that_is_no_recording_is_told(
    path: Path, change: Callable[[pa.Table], pa.Table], sentence: str
) -> None:
    rewrite(path, change)
    with pytest.raises(RecordingError, match=f"recording .*a.parquet {sentence}"):
        load(path)


def test_more_rows_than_fit_are_refused_before_they_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_GROUP_ROWS", 999)
    with pytest.raises(RecordingError, match="has a row group of more than 999 rows; use the file that ibpulse wrote"):
        load(path)


def test_a_recording_that_takes_too_much_memory_is_refused_and_a_part_of_it_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # two ports; a tenth of the recording fits
    monkeypatch.setattr(limits, "spare_bytes", lambda: 50 * (2 * files.ROW_BYTES + files.TICK_BYTES))
    with pytest.raises(
        RecordingError,
        match=r"has 500 samples of 2 ports to analyse, which takes 395 kB of memory; 39.5 kB can be spared; "
        "choose a shorter part with --from and --to, or use a machine with more memory",
    ):
        load(path)
    assert load(path, 100, 150) == make_recording(500).cut(100, 150)
    assert sum(piece.ticks for piece in scan(path)) == 500


def test_memory_that_runs_out_while_reading_is_a_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 1099511627776 failed")

    monkeypatch.setattr(files, "decode", fail)
    with pytest.raises(
        RecordingError, match=r"takes more memory than the .* that can be spared, or is damaged; copy it"
    ):
        load(path)


def test_columns_of_others_are_not_read(path: Path) -> None:
    # a column of a text of 1 MB in each of 1,000 rows takes a gigabyte, and a kilobyte in the file
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 10**6]))
    rewrite(path, lambda table: table.append_column("note", long))
    before = pa.total_allocated_bytes()
    pieces = scan(path)
    assert next(pieces).ticks == 500
    assert pa.total_allocated_bytes() - before < 10**6
    assert load(path) == make_recording(500)


@pytest.mark.parametrize("stream", [False, True])
def test_a_part_is_that_part_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    monkeypatch.setattr("ibpulse.core.recordings.files.GROUP_ROWS", 64)
    recording = make_recording(500)
    if stream:
        with RecordingWriter(tmp_path / "a", recording.meta) as writer:
            for first in range(0, 500, 30):
                writer.append(recording.cut(first, first + 30))
            found = {part: load(tmp_path / "a", *part) for part in PARTS}
    else:
        save(tmp_path / "a", recording)
        found = {part: load(tmp_path / "a", *part) for part in PARTS}
    for (first, end), part in found.items():
        whole = recording.cut(first, end)
        assert (part.start_ns, part.ticks) == (whole.start_ns, whole.ticks)
        np.testing.assert_array_equal(part.bytes_per_second, whole.bytes_per_second)


def test_a_stream_with_a_huge_batch_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = make_recording(50)
    monkeypatch.setattr(files, "MAX_GROUP_ROWS", 99)
    monkeypatch.delattr(files, "_stream")
    writer = RecordingWriter(tmp_path / "a.parquet", recording.meta)
    writer.append(recording)
    with pytest.raises(RecordingError, match="has a batch of more than 99 rows"):
        load(tmp_path / "a.parquet")
    with pytest.raises(RecordingError, match="has a batch of more than 99 rows"):
        writer.close()


def test_an_uncertainty_of_any_size_is_read_as_the_greatest(path: Path) -> None:
    rewrite(path, put("transmit_uncertainty", 3e38, pa.float32()))
    assert (load(path).steps[:, 0] == MAX_STEPS).all()
