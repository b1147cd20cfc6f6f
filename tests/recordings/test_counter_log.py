"""Counter logs of other programs as recordings: what flowed, when, and what is not known."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.base import limits
from ibpulse.base.errors import RecordingError
from ibpulse.cli import main
from ibpulse.core.recordings import Recording, load, save
from ibpulse.workbench.recorder import counter_log
from ibpulse.workbench.recorder.counter_log import GridOptions, LogColumns, PortLog, read_log, resample
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.workloads import DENSE
from tests.recordings.recordings import make_recording
from tests.tables import for_each
from tests.truth import truth_of

SECOND_NS = 1_000_000_000
START_NS = 1_763_683_200 * SECOND_NS
LONG = LogColumns(time="time", port="port", transmit="sent", receive="received")
WIDE = LogColumns(time="time", transmit="{port}_tx", receive="{port}_rx")
ONE = LogColumns(time="time", transmit="sent", receive="received")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.csv"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def change(columns: LogColumns, **changes: object) -> LogColumns:
    return LogColumns(**{name: changes.get(name, getattr(columns, name)) for name in LogColumns.__slots__})


def imported(path: Path, columns: LogColumns, **options: object) -> Recording:
    return resample(read_log(path, columns), columns, GridOptions(**options))


def total(recording: Recording) -> np.ndarray:
    """Bytes of each port and direction."""
    return np.nansum(recording.bytes_per_second * recording.seconds, axis=2)


# layouts and units


def test_a_log_has_a_port_for_each_name_or_pair_of_columns(path: Path) -> None:
    write(path, "time,port,sent,received", "1,mlx5_0:2,0,0", "1,storage,5,5", "2,mlx5_0:2,1000,2000", "2,storage,5,25")
    recording = imported(path, LONG)
    assert [str(port.id) for port in recording.meta.ports] == ["mlx5_0:2", "storage:1"]
    assert recording.bytes_per_second[:, :, 0].tolist() == [[1000.0, 2000.0], [0.0, 20.0]]
    assert (recording.start_ns, recording.meta.interval_ns) == (2 * SECOND_NS, SECOND_NS)
    write(path, "time,eth0_tx,eth0_rx,mlx5_1/2_tx,load", "0,0,0,0,9", "1,10,20,30,9", "2,20,40,60,9")
    recording = imported(path, WIDE)
    assert [str(port.id) for port in recording.meta.ports] == ["eth0:1", "mlx5_1:2"]
    assert recording.bytes_per_second[0].tolist() == [[10.0, 10.0], [20.0, 20.0]]
    # no column says what mlx5_1 received
    assert recording.bytes_per_second[1, 0].tolist() == [30.0, 30.0]
    assert np.isnan(recording.bytes_per_second[1, 1]).all()


SINCE = change(ONE, since_before=True)


@for_each(
    {
        "bytes": (ONE, "0,100,0 1,108,0 2,116,0", [8, 8], [0, 0]),
        "words": (change(ONE, unit="words"), "0,100,0 1,108,0 2,116,0", [32, 32], [0, 0]),
        "MB": (change(ONE, unit="MB"), "0,100,0 1,108,0 2,116,0", [8e6, 8e6], [0, 0]),
        "KiB": (change(ONE, unit="KiB"), "0,100,0 1,108,0 2,116,0", [8192, 8192], [0, 0]),
        "the rate before a row": (change(ONE, unit="B/s"), "0,7,7 1,3,0.5 2,4,0.25", [3, 4], [0.5, 0.25]),
        "GB/s": (change(ONE, unit="GB/s"), "0,7,7 1,3,0.5 2,4,0.25", [3e9, 4e9], [5e8, 2.5e8]),
        "Gb/s": (change(ONE, unit="Gb/s"), "0,7,7 1,3,0.5 2,4,0.25", [3.75e8, 5e8], [6.25e7, 3.125e7]),
        "amounts since the row before": (SINCE, "0,99,99 1,3,0 2,4,1", [3, 4], [0, 1]),
        "all digits": (ONE, f"0,{2**62},0 1,{2**62 + 4},0 2,{2**62 + 12},0", [4, 8], [0, 0]),
        "a counter that fell": (ONE, "0,100,0 1,200,1 2,50,2 3,90,3", [100, np.nan, 40], [1, 1, 1]),
        "a counter that was not read": (ONE, "0,100,0 1,,1 2,300,2", [100, 100], [1, 1]),
        "an amount that is missing": (SINCE, "0,1,1 1,,1 2,3,1", [np.nan, 3], [1, 1]),
    }
)
def test_rows_become_rates(
    columns: LogColumns, rows: str, sent: list[float], received: list[float], path: Path
) -> None:
    write(path, "time,sent,received", *rows.split())
    np.testing.assert_array_equal(imported(path, columns).bytes_per_second[0], [sent, received])


def test_numbers_that_become_fractions_later_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_log, "BLOCK_BYTES", 64)
    write(path, "time,sent,received", *[f"{second},{second * 10},0" for second in range(20)], "20,200.5,0")
    assert imported(path, ONE).bytes_per_second[0, 0, -1] == pytest.approx(10.5)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "strange"])
def test_the_same_log_in_any_wrapping_is_the_same_recording(tmp_path: Path, ending: str) -> None:
    frame = pd.DataFrame({"time": [1, 2, 3], "sent": [0, 10, 30], "received": [0, 1, 2]})
    path = tmp_path / f"log.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    elif ending == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    else:
        frame.to_csv(path, index=False)
    assert imported(path, ONE).bytes_per_second[0].tolist() == [[10.0, 20.0], [1.0, 1.0]]


# times


@pytest.mark.parametrize(
    ("first", "second", "unit"),
    [
        ("1763683200", "1763683201", ""),
        ("1763683200.0", "1763683201.0", ""),
        ("1763683200000", "1763683201000", ""),
        ("1763683200000000", "1763683201000000", ""),
        ("1763683200000000000", "1763683201000000000", ""),
        ("1763683200000", "1763683201000", "ms"),
        ("2025-11-21 00:00:00", "2025-11-21 00:00:01", ""),
        ("2025-11-21T00:00:00.000Z", "2025-11-21T00:00:01.000Z", ""),
        ("2025-11-21T01:00:00+01:00", "2025-11-21T01:00:01+01:00", ""),
    ],
)
def test_times_are_told_by_their_size_or_their_text(path: Path, first: str, second: str, unit: str) -> None:
    write(path, "time,sent,received", f"{first},0,0", f"{second},5,5")
    recording = imported(path, change(ONE, time_unit=unit))
    assert (recording.start_ns, recording.meta.interval_ns) == (START_NS + SECOND_NS, SECOND_NS)


def test_small_numbers_are_seconds_unless_it_is_said(path: Path) -> None:
    write(path, "time,sent,received", "0,0,0", "500,5,5", "1000,10,10")
    assert imported(path, ONE).meta.interval_ns == 500 * SECOND_NS
    assert imported(path, change(ONE, time_unit="ms")).meta.interval_ns == 500_000_000


# the grid


def test_uneven_samples_are_laid_on_a_regular_grid_and_no_byte_is_lost(path: Path) -> None:
    schedule = Schedule(DENSE, rails=2)
    times = np.arange(3000) * 10_000_000 + np.random.default_rng(3).integers(0, 4_000_000, 3000)
    times[0] = 0
    moved = schedule.cumulative_bytes(times)
    frame = pd.DataFrame({"time": START_NS + times})
    for rail, name in enumerate(("a", "b")):
        frame[f"{name}_tx"], frame[f"{name}_rx"] = moved[:, rail, 0], moved[:, rail, 1]
    frame.to_csv(path, index=False)
    recording = imported(path, WIDE)
    assert recording.meta.interval_ns == 10_000_000
    assert not np.isnan(recording.bytes_per_second).any()
    end_ns = recording.ticks * 10_000_000
    expected = [[np.interp(end_ns, times, moved[:, rail, way]) for way in range(2)] for rail in range(2)]
    np.testing.assert_allclose(total(recording), expected, rtol=1e-9)
    exact = truth_of(schedule, 0, end_ns)
    assert recording.bytes_per_second.sum(axis=(0, 1)).max() == pytest.approx(exact.peak, rel=0.1)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_between_its_ends_a_log_without_holes_keeps_its_bytes(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=30))
    moved = data.draw(st.lists(st.integers(0, 10**12), min_size=len(gaps), max_size=len(gaps)))
    times = np.cumsum([0, *gaps]) * 1_000_000
    counter = np.cumsum([5, *moved])
    interval_ns = data.draw(st.integers(1, sum(gaps))) * 1_000_000
    options = GridOptions(interval_ns=interval_ns, longest_gap_ns=10**12)
    found = resample([PortLog("a", times, (counter, None))], ONE, options)
    end_ns = found.ticks * interval_ns
    assert total(found)[0, 0] == pytest.approx(np.interp(end_ns, times, counter - 5), rel=1e-9, abs=1e-3)
    assert (found.seconds[0, 0] == interval_ns / SECOND_NS).all()


@pytest.mark.parametrize(
    ("distances_ms", "interval_ms"),
    [
        ([10] * 40, 10),
        ([15_000] * 40, 15_000),
        ([570, 580, 600, 560] * 10, 1000),
        ([101, 108, 95, 99] * 10, 100),
        ([33] * 9, 33),
    ],
)
def test_the_grid_is_about_as_fine_as_the_log(distances_ms: list[int], interval_ms: int) -> None:
    times = np.cumsum([0, *distances_ms]) * 1_000_000
    found = resample([PortLog("a", times, (np.arange(len(times)), None))], ONE, GridOptions())
    assert found.meta.interval_ns == interval_ms * 1_000_000


def test_a_long_silence_of_the_log_is_a_hole_and_a_short_one_is_not(path: Path) -> None:
    seconds = [0, 1, 2, 3, 7, 8, 9, 20, 21, 22]
    write(path, "time,sent,received", *[f"{second},{10 * second},0" for second in seconds])
    recording = imported(path, ONE)
    holes = np.flatnonzero(np.isnan(recording.bytes_per_second[0, 0])).tolist()
    # five usual distances are bridged: 3 to 7 is, 9 to 20 is not
    assert holes == list(range(9, 20))
    assert (recording.seconds[0, 0, holes] == 0).all()
    np.testing.assert_allclose(np.delete(recording.bytes_per_second[0, 0], holes), 10.0)
    shorter = imported(path, ONE, longest_gap_ns=2 * SECOND_NS)
    assert np.flatnonzero(np.isnan(shorter.bytes_per_second[0, 0])).tolist() == [3, 4, 5, 6, *range(9, 20)]


def test_holes_are_where_the_log_or_a_port_has_none(path: Path) -> None:
    write(path, "time,sent,received", *[f"{second},{second},0" for second in (0, 0.5, 1, 1.5, 11.5, 12, 12.5, 13)])
    recording = imported(path, ONE, interval_ns=SECOND_NS)
    assert np.flatnonzero(np.isnan(recording.bytes_per_second[0, 0])).tolist() == list(range(1, 12))
    rows = [f"{second},a,{second},0" for second in range(4)] + [f"{second},b,{second},0" for second in range(2, 7)]
    write(path, "time,port,sent,received", *rows)
    known = ~np.isnan(imported(path, LONG).bytes_per_second[:, 0])
    assert known.tolist() == [[True] * 3 + [False] * 3, [False] * 2 + [True] * 4]


# files that cannot be read


def refused(path: Path, columns: LogColumns = ONE, **options: object) -> str:
    with pytest.raises(RecordingError) as caught:
        imported(path, columns, **options)
    return str(caught.value).removeprefix(f"log {path} ")


@for_each(
    [
        (ONE, "", "has no row; log for longer"),
        (LogColumns("when", "sent"), "0,1,2", "has no column when; it has time, sent, received"),
        (WIDE, "0,1,2", "has no column like {port}_tx or {port}_rx; it has time, sent, received"),
        (change(WIDE, port="port"), "0,1,2", "is either long or wide: --port and {port} exclude each other"),
        (LogColumns("time"), "0,1,2", "cannot be read without a column of bytes; name one with --transmit or"),
        (ONE, "0,1,1\n5,2,2\n5,3,3", "has two rows of port0 at 5000000000 ns; remove one"),
        (ONE, "later,1,1\nlater,2,2", "has no time in the column time: 'later'; write numbers, or 2026-11-21 12:00"),
        (ONE, "-5,1,1\n7,2,2", "has times outside of 1970 to 2116, read as s; say what they are with --time-unit"),
        (change(ONE, time_unit="s"), "0,1,1\n1763683200000,2,2", "has times outside of 1970 to 2116, read as s"),
        (ONE, "nan,1,1\n7,2,2", "has rows without a time in the column time; remove them"),
        (ONE, ",1,1\n7,2,2", "has rows without a time in the column time; remove them"),
        (ONE, "0,fast,1\n1,fast,2", "has no number in the column sent: 'fast'; name a column of numbers"),
        (ONE, "0,inf,1\n1,inf,2", "has an infinite number in the column sent; remove that row"),
        (change(ONE, port="received"), "0,1,a\n1,2,", "has rows without a port in the column received; remove them"),
    ]
)
def test_unusable_log_is_refused(columns: LogColumns, rows: str, sentence: str, tmp_path: Path) -> None:
    said = refused(write(tmp_path / "log.csv", "time,sent,received", *rows.splitlines()), columns)
    assert said.startswith(sentence)


@for_each(
    [
        ([5], [5], ONE, GridOptions(), "has fewer than two samples of each port; log for longer"),
        ([0, 5], [5, 6], ONE, GridOptions(interval_ns=10 * SECOND_NS), "is shorter than one interval of 10000 ms"),
        ([0, 1, 2], [1, 2, -3], change(ONE, since_before=True), GridOptions(), "negative amount of a; if the"),
    ]
)
def test_samples_without_a_grid_are_refused(
    seconds: list[int], values: list[int], columns: LogColumns, options: GridOptions, sentence: str
) -> None:
    log = PortLog("a", np.array(seconds) * SECOND_NS, (np.array(values), None))
    with pytest.raises(ValueError, match=sentence):
        resample([log], columns, options)


def test_a_word_among_numbers_is_told_with_its_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_log, "BLOCK_BYTES", 64)
    write(path, "time,sent,received", *[f"{second},{second},0" for second in range(30)], "30,fast,0")
    assert "neither CSV nor Parquet, or damaged" in refused(path)
    assert "invalid value 'fast'" in refused(path)


def test_grids_that_are_too_long_or_empty_are_refused(path: Path) -> None:
    log = PortLog("a", np.array([0, 10**6, 2**61]), (np.array([5, 6, 7]), None))
    with pytest.raises(ValueError, match=r"would have \d+ samples of 1 ports at 1 ms, which takes .* give a longer"):
        resample([log], ONE, GridOptions(interval_ns=10**6))
    later = 600_000
    write(path, "time,sent,received", *[f"{second},1,1" for second in (*range(100), *range(later, later + 101))])
    assert imported(path, ONE).ticks == later + 100
    with pytest.raises(ValueError, match="has data for 3m19s of 166h41m40s; correct its times, cut it into pieces"):
        imported(path, ONE, interval_ns=SECOND_NS // 2)
    # one row in each five seconds is no gap
    write(path, "time,sent,received", *[f"{5 * second},1,1" for second in range(1200)])
    assert imported(path, ONE, interval_ns=5_000_000).ticks == 1199 * 1000


def test_more_rows_than_fit_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "spare_bytes", lambda: 100)
    write(path, "time,sent,received", *[f"{second},1,1" for second in range(4)])
    assert refused(path) == (
        "takes more than 640 B of memory from row 4 on; 100 B can be spared; cut it into pieces, or use a machine with "
        "more memory"
    )


def test_logs_that_are_too_large_or_no_counters_are_refused_before_they_are_read(path: Path, tmp_path: Path) -> None:
    write(path, "time,sent" + "," * 10_000)
    assert refused(path) == "has more than 10000 columns; remove those that are no counters"
    pq.write_table(pa.table({"time": [1, 2], "sent": [[1], [2]]}), path)
    with pytest.raises(RecordingError, match="has lists or structures in the column sent; name a column of numbers"):
        read_log(path, LogColumns("time", "sent"))
    save(tmp_path / "a.parquet", make_recording(10))
    assert refused(tmp_path / "a.parquet") == "is already a recording of ibpulse; use it directly"


def test_a_long_text_in_each_row_of_parquet_is_kept_once(path: Path) -> None:
    # 100 MB of names, in a small file
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 10**5])).cast(pa.string())
    columns = {"time": np.arange(1000), "sent": np.arange(1000), "port": names}
    pq.write_table(pa.table(columns), path)
    del columns, names
    (log,) = read_log(path, LogColumns("time", "sent", port="port"))
    assert (len(log.name), len(log.time_ns)) == (10**5, 1000)


@pytest.mark.parametrize(
    "content", [b"\x1f\x8b\x08 no gzip", b"PAR1 no parquet", b"\xff\xfe\x00\x01" * 50, b'time,sent\n"']
)
def test_a_damaged_file_is_told(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert refused(path).partition(":")[0] in (
        "is neither CSV nor Parquet, or damaged",
        "cannot be read",
        "has no column time, sent, received; it has",
    )


def test_import_uses_every_flag(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(path, "when,nic,sent,got", *[f"{second},a,{second},{5 * second}" for second in range(11)])
    out = path.with_name("out.parquet")
    words = ["--time=when", "--transmit=sent", "--receive=got", "--port=nic", "--unit=words", "--interval=2s"]
    words += ["--line-rate=50GB/s", "--host=node7", "--longest-gap=1m"]
    assert main(["import", str(path), "-o", str(out), *words], {}) == 0
    assert capsys.readouterr() == (f"{out}: 1 port, 5 samples of 2s, 0.0 % missing\n", "")
    recording = load(out)
    assert recording.bytes_per_second.tolist() == [[[4.0] * 5, [20.0] * 5]]
    assert (recording.meta.host, recording.meta.reason) == ("node7", "log.csv")
    assert (str(recording.meta.ports[0].id), recording.meta.ports[0].rate_bytes_per_second) == ("a:1", 50e9)
