"""Signs of limits and changes of signals of a recording."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ibpulse.core.recordings import Recording
from ibpulse.core.recordings.limits import SignalChange, find_recorded_signs, signal_changes
from ibpulse.core.recordings.marks import SIGNS, NodeSamples
from ibpulse.core.recordings.signals import PortSignals
from ibpulse.core.signals import Signal
from tests.recordings.recordings import make_recording

CNP, SEQ = Signal("rp_cnp_packets_handled", 64), Signal("packet_sequence_errors", 32, stops=True)
FULL = 2**32 - 1


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
