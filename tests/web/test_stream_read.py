"""The newest ticks as rates for the stream, where a port is sampled more seldom than before."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ibpulse.web.stream.feed import read_rates, widest_stride
from tests.aggregator.rings import Ring, constant, port


def test_samples_from_before_a_longer_interval_keep_their_own(tmp_path: Path) -> None:
    ring = Ring.create(tmp_path, port("mlx5_0:1"), seconds=10)
    counters = ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 1, 200)
    ring.write("mlx5_0:1", (constant(1e9), constant(2e9)), 201, 400, stride=10, start=counters)
    (slot,) = ring.file.slots().values()
    assert widest_stride(ring.reader, [slot]) == 10
    found = read_rates(ring.reader, [slot], 151, 200)
    wanted = np.repeat([[1e9], [2e9]], 200, axis=1)
    # the change is a hole of one stride, and no false rate
    wanted[:, 50:60] = np.nan
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
