"""What the windows of a node with constant traffic say."""

from __future__ import annotations

from collections.abc import Sequence

from tests.virtual.node import Node

RATE = 20_000_000_000
WORD = 4
# a rate may be wrong by one word in 10 ms, and has single precision: numbers near 20e9 are 2048 apart
WORD_RATE = 2400
DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")

Values = Sequence[float | None]


def runs(values: Values) -> list[tuple[float | None, int]]:
    """The values as runs of equal ones with their lengths."""
    found: list[tuple[float | None, int]] = []
    for value in values:
        if found and found[-1][0] == value:
            found[-1] = value, found[-1][1] + 1
        else:
            found.append((value, 1))
    return found


def holes(values: Values) -> list[int]:
    """The lengths of the runs of missing samples."""
    return [count for value, count in runs(values) if value is None]


def assert_no_false_rate(node: Node, last: str) -> None:
    """Every sample of a window is the constant rate or missing, and no peak is higher."""
    for name, values in node.window(last).items():
        assert all(value is None or abs(value - RATE) <= WORD_RATE for value in values), f"{name}: {runs(values)}"
    assert_no_false_peak(node)


def assert_no_false_peak(node: Node) -> None:
    metrics = node.metrics()
    for way in ("transmit", "receive"):
        peaks = metrics.find(f"ibpulse_port_{way}_peak_bytes_per_second", window="10s")
        assert all(value <= RATE + WORD_RATE for value in peaks.values()), peaks
