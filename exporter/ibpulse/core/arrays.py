"""Types of numpy arrays, and running sums of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
"""Words of a ring, such as raw counters."""
Rows = npt.NDArray[np.intp]
"""Row indices of ports in a table, or of rails in an array of ports."""
Pixels = npt.NDArray[np.uint8]


def running_sum(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sum of the values before each place, and of all: (n + 1,) for (n,)."""
    return np.concatenate(([0], np.cumsum(values)))
