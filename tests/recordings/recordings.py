"""Recordings for the tests: by hand, by chance, and by strategy."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ibpulse.core.events import KINDS, Event
from ibpulse.core.jobs import Claim, Holding, JobRecord, PlacedJob
from ibpulse.core.model import ROLES, PortId, PortIdentity, PortState
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta
from ibpulse.core.recordings.recording import MAX_BYTES_PER_SECOND
from ibpulse.core.signals import MEANINGS, Signal
from ibpulse.core.statistics.gains import PortSignals

START_NS = 1_763_683_200 * 10**9
INTERVAL_NS = 10_000_000
SHOWN_WORDS = st.text("abc 01:_äßΩ✓", max_size=20)
WORDS = st.text(string.printable + "äßΩ✓", max_size=20)


def make_meta(ports: int = 2, **changes: Any) -> RecordingMeta:
    """What a recording of so many ports says of itself."""
    made = tuple(RecordedPort(f"mlx5_{number}", 1, 50e9, source="counters") for number in range(ports))
    return RecordingMeta(**{"host": "node7", "interval_ns": INTERVAL_NS, "ports": made, "source": "record", **changes})


def make_recording(ticks: int, ports: int = 2, seed: int = 0, start_ns: int = START_NS, **changes: Any) -> Recording:
    """Words of a counter over uneven times, with a hole here and there."""
    rng = np.random.default_rng(seed)
    seconds = np.rint((0.01 + rng.normal(0, 2e-4, (ports, 2, ticks))) * 1e9) / 1e9
    rates = 4 * np.rint(seconds * rng.gamma(1, 2e9, seconds.shape)) / seconds
    holes = rng.random(seconds.shape) < 0.05
    rates[holes], seconds[holes] = np.nan, 0.0
    steps, merged = rng.integers(1, 200, rates.shape).astype(np.uint16), rng.random(rates.shape) < 0.05
    steps[holes], merged[holes] = 0, False
    return Recording(make_meta(ports, **changes), start_ns, rates, seconds, steps, merged)


ports = st.builds(
    RecordedPort,
    device=st.text(string.ascii_letters + string.digits + "_.-é", min_size=1, max_size=12),
    port=st.integers(0, 255),
    rate_bytes_per_second=st.none() | st.floats(1, 1e12),
    rail=st.booleans(),
    role=st.sampled_from(ROLES),
    active=st.booleans(),
    state=WORDS,
    source=WORDS,
    stride=st.integers(1, 1000),
    resolution_seconds=st.none() | st.floats(0, 10),
    identity=st.builds(PortIdentity, *[WORDS] * 10),
    physical=WORDS,
    problem=WORDS,
    signals=st.lists(
        st.builds(Signal, st.sampled_from(list(MEANINGS)), st.integers(1, 64), st.booleans()),
        max_size=3,
        unique_by=lambda signal: signal.name,
    ).map(tuple),
)
states = st.none() | st.builds(
    PortState, SHOWN_WORDS, SHOWN_WORDS, st.booleans(), st.none() | st.floats(1, 1e12), st.booleans()
)
events = st.builds(
    Event,
    time_ns=st.integers(0, 2**62),
    kind=st.sampled_from(list(KINDS)) | st.just("later"),
    subject=st.just("mlx5_0:1") | SHOWN_WORDS,
    text=SHOWN_WORDS,
    uncertainty_ns=st.integers(0, 2**62),
    before=states,
    after=states,
    details=st.dictionaries(WORDS.filter(lambda name: name != "ports"), WORDS | st.integers(0, 9), max_size=2),
)
jobs = st.builds(
    lambda name, ids, times, words: JobRecord(
        PlacedJob(Claim(name, "slurm", "file", *words), ids, "gpus" if ids else ""), *times, (Holding(ids),)
    ),
    name=st.text(string.ascii_letters + string.digits, min_size=1, max_size=9),
    ids=st.lists(st.builds(PortId, st.sampled_from(["mlx5_0", "b"]), st.integers(0, 255)), max_size=3).map(tuple),
    times=st.tuples(*[st.none() | st.integers(1, 2**62), st.integers(0, 2**62)] * 2),
    words=st.tuples(SHOWN_WORDS, SHOWN_WORDS),
)
metas = st.builds(
    RecordingMeta,
    host=WORDS,
    interval_ns=st.integers(1, 10**9),
    ports=st.lists(ports, min_size=1, max_size=4, unique_by=lambda port: port.id).map(tuple),
    source=WORDS,
    reason=WORDS,
    labels=st.dictionaries(WORDS, WORDS, max_size=3),
    trigger_ns=st.none() | st.integers(0, 2**62),
    ibpulse_version=WORDS,
    complete=st.booleans(),
    events=st.lists(events, max_size=3).map(lambda found: tuple(sorted(found, key=lambda event: event.time_ns))),
    events_left_out=st.integers(0, 9),
    simulated=st.booleans(),
    jobs=st.lists(jobs, max_size=3).map(tuple),
    jobs_left_out=st.integers(0, 9),
)


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Any recording: any possible rates and times, holes anywhere."""
    meta = draw(metas)
    shape = (len(meta.ports), 2, draw(st.integers(1, 8)))
    rates = draw(arrays.arrays(np.float64, shape, elements=st.floats(0, MAX_BYTES_PER_SECOND) | st.just(np.nan)))
    seconds = draw(arrays.arrays(np.float64, shape, elements=st.floats(0, 1e9)))
    seconds[np.isnan(rates)] = 0.0
    signals = tuple(draw(port_signals(len(port.signals), shape[2])) for port in meta.ports)
    return Recording(meta, draw(st.integers(0, 2**62)), rates, seconds, signals=signals)


@st.composite
def port_signals(draw: st.DrawFn, count: int, ticks: int) -> PortSignals:
    """Readings of so many signals at some samples, some of them missing, but none without any counter."""
    samples = sorted(draw(st.sets(st.integers(0, ticks - 1)))) if count else []
    seconds = [draw(st.floats(0, 1e9) | st.just(np.nan)) for _ in samples]
    counters = draw(arrays.arrays(np.uint64, (len(samples), count), elements=st.integers(0, 2**64 - 1)))
    counters[:, 0:1] >>= np.uint64(1)
    return PortSignals(np.array(samples, dtype=np.int64), np.array(seconds), counters)


def members(**changes: Any) -> Mapping[str, Any]:
    """The metadata of a small recording as JSON."""
    port = {"device": "mlx5_0", "port": 1}
    made = {"ibpulse_recording_version": 1, "host": "a", "interval_ns": INTERVAL_NS, "ports": [port], "source": "x"}
    return {**made, **changes}
