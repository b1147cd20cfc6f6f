"""Signals in recordings: from the ring to the columns of a file and back, their signs and changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ibpulse.core.model import PortIdentity
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, concatenate, load, save
from ibpulse.core.recordings.file_format import read_header, write_header
from ibpulse.core.recordings.files import RecordingWriter
from ibpulse.core.recordings.from_ring import read_pieces
from ibpulse.core.recordings.limits import SignalChange, find_recorded_signs, signal_changes
from ibpulse.core.recordings.perfetto import SIGNS, NodeSamples
from ibpulse.core.ring.file import RingFile
from ibpulse.core.ring.reader import RingReader
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import MISSING, PortSignals
from ibpulse.workbench.pictures.run import keep_direction
from ibpulse.workbench.python.samples import SampledRates
from tests.recordings.recordings import make_recording
from tests.ring.writing import put, put_signals

INTERVAL_NS = 10_000_000
ROCE = (Signal("rp_cnp_packets_handled", 64), Signal("port_transmit_wait", 32, stops=True))
FULL = 2**32 - 1


@pytest.fixture
def made(tmp_path: Path) -> Recording:
    """100 samples of two ports; the first is read every ten ticks from tick 5 on, the second has no signals."""
    ring = RingFile.create(tmp_path / "ring", INTERVAL_NS, 1000, signal_capacity=100)
    ring.begin_segment(1, 0)
    slots = [ring.assign(f"mlx5_{number}:1", 4, 1) for number in range(2)]
    ring.assign_signals(slots[0], ROCE, 1)
    for tick in range(1, 300):
        for slot in slots:
            put(ring, slot, tick, (tick * INTERVAL_NS,) * 3 + (tick * 1000, tick * 1000))
        if tick % 10 == 5:
            wait = FULL if tick > 180 else tick
            stamps = (tick * INTERVAL_NS, tick * INTERVAL_NS + 1000, tick * INTERVAL_NS + 3000)
            put_signals(ring, slots[0], tick, (10 * tick, int(MISSING) if tick == 145 else wait), stamps)
    ports = tuple(
        RecordedPort(f"mlx5_{number}", 1, 50e9, identity=PortIdentity(), signals=ROCE[: 2 - 2 * number])
        for number in range(2)
    )
    meta = RecordingMeta("node7", INTERVAL_NS, ports, "record")
    return concatenate(list(read_pieces(RingReader(ring), meta, 101, 200, 101 * INTERVAL_NS, 30)))


def test_parts_and_choices_keep_the_signals_and_others_do_not_fit(made: Recording) -> None:
    ports = (replace(made.meta.ports[0], signals=ROCE * 1000),)
    read = read_header(write_header(replace(made.meta, ports=ports)))
    assert read.ports[0].signals == ROCE
    part = made.cut(10, 30)
    assert part.signals[0].samples.tolist() == [4, 14]
    assert concatenate([made.cut(0, 10), part, made.cut(30, 100)]) == made
    narrow = PortSignals(made.signals[0].samples, made.signals[0].seconds, made.signals[0].counters[:, :1])
    with pytest.raises(ValueError, match="signals do not fit"):
        replace(made, signals=(narrow, made.signals[1]))
    chosen = SampledRates(made, "made").select("mlx5_0").recording
    assert chosen.signals == (made.signals[0],)
    assert keep_direction(made, "transmit").signals == made.signals


def test_a_recording_has_the_readings_of_its_samples(made: Recording) -> None:
    assert made.signals[0].samples.tolist() == list(range(4, 100, 10))
    # the reading before the first one of a piece is not in it, but its time counts
    np.testing.assert_allclose(made.signals[0].seconds, 0.1)
    assert made.signals[0].counters[0].tolist() == [1050, 105]
    assert made.signals[1].counters.shape == (0, 0)
    gains = made.readings(0).gains()
    np.testing.assert_array_equal(gains.gained[1:, 0], 100)
    np.testing.assert_array_equal(gains.gained[1:, 1], [10, 10, 10, np.nan, np.nan, 10, 10, np.nan, np.nan])
    assert gains.full[:, 1].tolist() == [False] * 8 + [True] * 2
    np.testing.assert_allclose(gains.seconds[1:, 0], 0.1)
    assert made.readings(0).wall_ns[0] == 105 * INTERVAL_NS


def test_a_file_has_signals_and_bytes_on_one_axis_of_time(made: Recording, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    save(path, made)
    assert load(path) == made
    frame = pq.read_table(path).to_pandas()
    rows = frame[(frame.device == "mlx5_0") & frame.rp_cnp_packets_handled.notna()]
    assert len(rows) == 10
    assert rows.rp_cnp_packets_handled.iloc[0] == 1050
    assert rows.port_transmit_wait.isna().sum() == 1
    assert frame[frame.device == "mlx5_1"].signal_seconds.isna().all()
    about = json.loads(pq.read_schema(path).metadata[b"ibpulse_recording"])
    assert about["ports"][0]["signals"] == [["rp_cnp_packets_handled", 64, False], ["port_transmit_wait", 32, True]]
    path = tmp_path / "b.parquet"
    with RecordingWriter(path, made.meta) as writer:
        writer.append(made.cut(0, 40))
        writer.append(made.cut(60, 100))
    found = load(path)
    assert found.signals[0].samples.tolist() == [4, 14, 24, 34, *range(64, 100, 10)]
    ports = tuple(replace(port, signals=()) for port in made.meta.ports)
    plain = replace(made, meta=replace(made.meta, ports=ports), signals=())
    save(tmp_path / "c.parquet", plain)
    assert "signal_seconds" not in pq.read_schema(tmp_path / "c.parquet").names
    assert load(tmp_path / "c.parquet") == plain


def test_signals_of_newer_versions_are_ignored_and_a_missing_column_is_refused(made: Recording, tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    save(path, made)
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"ibpulse_recording"])
    about["ports"][0]["signals"][0][0] = "of_the_future"
    pq.write_table(table.replace_schema_metadata({b"ibpulse_recording": json.dumps(about)}), path)
    found = load(path)
    assert found.meta.ports[0].signals == ROCE[1:]
    assert found.signals[0].counters.shape == (9, 1)
    path = tmp_path / "e.parquet"
    save(path, made)
    pq.write_table(pq.read_table(path).drop_columns(["port_transmit_wait"]), path)
    with pytest.raises(Exception, match="lacks the column port_transmit_wait"):
        load(path)


CNP, SEQ = Signal("rp_cnp_packets_handled", 64), Signal("packet_sequence_errors", 32, stops=True)


def recorded(*counts: tuple[tuple[int, int], ...]) -> Recording:
    """A second of two RoCE rails at half of their peak; `counts` of each port are readings of both counters."""
    whole = make_recording(ports=2, ticks=100)
    ports = tuple(
        replace(port, signals=(CNP, SEQ), rail=True, identity=replace(port.identity, link_layer="Ethernet"))
        for port in whole.meta.ports
    )
    rates = np.full((2, 2, 100), 0.5 * 50e9)
    rates[:, :, 95:] = 50e9
    signals = tuple(
        PortSignals(np.arange(len(each)) * 10, np.full(len(each), 0.1), np.array(each, dtype=np.uint64))
        for each in counts
    )
    return replace(
        whole, meta=replace(whole.meta, ports=ports), bytes_per_second=rates, seconds=np.full((2, 2, 100), 0.01),
        steps=None, merged=None, signals=signals,
    )  # fmt: skip


QUIET = tuple((7, 3) for _ in range(10))
MARKED = tuple((7 + 400 * n, FULL if n > 4 else 3 + n) for n in range(10))


def test_signs_and_changes_of_signals() -> None:
    first, second = find_recorded_signs(recorded(QUIET, MARKED), [0, 1], 1e8)
    assert [first.name, second.name] == [str(port.id) for port in recorded(QUIET, MARKED).meta.ports]
    assert set(first.signs.strip(10)[1:9]) == {"s"}
    assert set(second.signs.strip(10)[1:9]) == {"p"}
    recording = recorded(QUIET, MARKED)
    names = [str(port.id) for port in recording.meta.ports]
    assert signal_changes(recording, [0, 1]) == [
        SignalChange("rp_cnp_packets_handled", "notifications", 3600.0, (), ()),
        SignalChange("packet_sequence_errors", "packets", 4.0, (names[1],), ()),
    ]
    assert signal_changes(recorded(((1, 1),), ((1, 1),)), [0])[0].gained is None
    whole = make_recording(ports=2, ticks=100)
    assert find_recorded_signs(whole, [0, 1], 1e8) == []
    assert signal_changes(whole, [0, 1]) == []


def test_pieces_of_a_long_recording_have_the_signs_of_the_whole() -> None:
    recording = recorded(QUIET, MARKED)
    samples = NodeSamples(recording.meta, [0, 1])
    samples.add(recording)
    found = [mark for mark in samples.marks(1e8) if mark.track.startswith(SIGNS)]
    assert {mark.name for mark in found if mark.track.endswith(str(recording.meta.ports[1].id))} == {"path", "unknown"}
    assert all(mark.end_ns is not None and mark.end_ns > mark.begin_ns for mark in found)
