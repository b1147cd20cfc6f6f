"""Periods and balance on excerpts of public traces, which are not part of the project."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ibpulse.core.statistics.balance import balance_rails
from ibpulse.core.statistics.rates import rates
from ibpulse.core.statistics.steps.period import BIN_SECONDS, bandwidth_bins, find_period, rate_bins

LINE_BYTES_PER_SECOND = 25e9
GROUPS = {
    11.40: ["Leaf-1_13_2", "Leaf-7_1_2", "Leaf-13_3_1", "Leaf-16_3_2"],
    25.6: ["Leaf-5_3_1", "Leaf-7_28_1", "Leaf-8_28_1", "Leaf-13_18_2"],
    40.7: ["Leaf-5_7_2", "Leaf-5_25_1", "Leaf-8_7_2", "Leaf-16_5_2"],
    51.76: ["Leaf-11_12_1", "Leaf-12_12_1", "Leaf-13_11_2", "Leaf-18_4_2"],
}
SENT = ["forward-send", "backward-send", "params-all-gather", "grads-reduce-scatter", "embedding-grads-all-reduce"]

Port = tuple[np.ndarray, np.ndarray]


def find_file(name: str) -> Path:
    """The file in the folder that IBTEST_DATA names, or in a `data` next to the checkout; skips where it is absent."""
    named = os.environ.get("IBTEST_DATA")
    found = [Path(named) / name] if named else sorted(Path(__file__).parents[3].glob(f"*/data/{name}"))
    if not (found and found[0].exists()):
        pytest.skip("no public traces")
    return found[0]


@pytest.fixture(scope="module")
def switch() -> dict[str, Port]:
    """Instants in ns and running sums of bytes (in, out) of 16 switch ports in a production cluster."""
    rows: dict[str, list[tuple[int, int, int]]] = {}
    with gzip.open(find_file("zhejianglab_16ports_0p57s.csv.gz"), "rt") as lines:
        for row in csv.DictReader(lines):
            values = (int(row["SaveTimeUTC"]), int(row["InOctets"]), int(row["OutOctets"]))
            rows.setdefault(row["port"], []).append(values)
    arrays = {port: np.array(values) for port, values in rows.items()}
    return {port: (one[:, 0] * 1_000_000, np.cumsum(one[:, 1:], axis=0)) for port, one in arrays.items()}


def bins_of(port: Port, width: float = 1.0) -> np.ndarray:
    seconds = (port[0] - port[0][0]) / 1e9
    moved = (port[1] - port[1][0]).sum(axis=1).astype(float)
    return rate_bins(seconds, moved, np.arange(0, seconds[-1], width))


# no narrower than the samples, which are 0.57 s apart at the median and seconds at times
@pytest.mark.parametrize("width", [1.0, 2.0])
@pytest.mark.parametrize("period", GROUPS)
def test_all_ports_of_a_group_have_its_period(switch: dict[str, Port], period: float, width: float) -> None:
    found = [find_period(bins_of(switch[name], width), width).seconds for name in GROUPS[period]]
    np.testing.assert_allclose(found, period, rtol=0, atol=0.1)
    assert np.ptp(found) < 0.1


@pytest.mark.parametrize("name", [name for group in GROUPS.values() for name in group])
def test_four_minutes_of_missing_data_make_no_spike(switch: dict[str, Port], name: str) -> None:
    times, moved = switch[name]
    longest = int(np.diff(times).argmax())
    assert times[longest + 1] - times[longest] > 240e9
    at_hole = (moved[longest + 1] - moved[longest]).max()
    # taken for the bytes of one nominal interval it would be a spike far above the line
    counters = moved.T[None].astype(np.uint64)
    found = rates(np.broadcast_to(times, counters.shape), counters, counters >= 0, np.ones(1, int), np.ones(1, int))
    assert np.nanmax(found.bytes_per_second[0, :, longest + 1]) == pytest.approx(at_hole / 247, rel=0.03)
    assert np.nanmax(found.bytes_per_second) < 1.02 * LINE_BYTES_PER_SECOND
    bins = bins_of(switch[name])
    assert np.nanmax(bins) < 2.04 * LINE_BYTES_PER_SECOND
    begin = round((times[longest] - times[0]) / 1e9)
    assert np.isnan(bins[begin + 2 : begin + 240]).all()


@pytest.mark.parametrize("period", GROUPS)
def test_the_ports_of_a_group_are_balanced(switch: dict[str, Port], period: float) -> None:
    ports = [switch[name] for name in GROUPS[period]]
    mean = np.array([(one[1][-1] - one[1][0]).sum() / (one[0][-1] - one[0][0]) * 1e9 for one in ports])
    found = balance_rails(mean)
    assert found.fairness >= 0.99
    assert not (found.idle | found.slow).any()


@pytest.fixture(scope="module")
def trace() -> dict[str, np.ndarray]:
    """Operations of 8 ranks in 32 steps of a training job."""
    return {
        name: np.array(values)
        for name, values in pq.read_table(find_file("straggler_trace_ST.parquet")).to_pydict().items()
    }


def lay_end_to_end(trace: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """When each operation starts with the steps one after the other, and how long each step takes."""
    steps, number = np.unique(trace["step"], return_inverse=True)
    length = np.zeros(len(steps))
    np.maximum.at(length, number, trace["start_ts"] + trace["duration"])
    return trace["start_ts"] + np.concatenate(([0.0], np.cumsum(length)[:-1]))[number], length


def counters_of(begin: np.ndarray, duration: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """Words of a rank that sends at 10 GB/s in every operation, at each instant."""
    seconds = time_ns / 1e9
    moved = np.zeros(len(seconds))
    for start, length in zip(begin, np.maximum(duration, 1e-4), strict=True):
        moved += np.clip(seconds - start, 0, length) * 10e9 / 4
    return moved.astype(np.uint64)


@pytest.mark.parametrize("first_step", [0, 8, 16])
def test_the_step_of_a_real_training_run_is_found_in_its_10_ms_counters(
    trace: dict[str, np.ndarray], first_step: int
) -> None:
    begin, length = lay_end_to_end(trace)
    sends = np.isin(trace["optype"], SENT)
    start = float(length[:first_step].sum())
    time_ns = np.arange(round(start * 100), int(length.sum() * 100)) * 10_000_000
    words = np.stack(
        [
            counters_of(begin[at], trace["duration"][at], time_ns)
            for at in (sends & (trace["rank"] == rank) for rank in range(8))
        ]
    )[:, None]
    times = np.broadcast_to(time_ns, words.shape)
    edges = time_ns[0] + np.arange(int((time_ns[-1] - time_ns[0]) / 1e9 / BIN_SECONDS)) * round(BIN_SECONDS * 1e9)
    found = find_period(bandwidth_bins(times, words, np.ones(words.shape, bool), np.full(8, 4), edges))
    assert found.seconds == pytest.approx(length[first_step:].mean(), rel=5e-3)
    if first_step == 0:
        assert found.seconds == pytest.approx(2.214, rel=5e-3)
