"""Reads windows of a daemon, as JSON and as NPY, value by value, and encodes them anew."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ibpulse.answers.members import NOT_OURS, read_members
from ibpulse.answers.window import WindowAnswer, WindowHead
from ibpulse.arrays import Singles
from ibpulse.client.transport import PeerAnswer, read_answer
from ibpulse.errors import DaemonError
from ibpulse.model import DIRECTIONS
from ibpulse.units import MILLISECOND_NS

WINDOW_HEADER = "x-ibpulse-window"
NPY_TYPE = "application/x-npy"
# as NumPy writes it; its own reader takes much more, and fails in many ways
_NPY_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '<f4', 'fortran_order': False, 'shape': \(([0-9]{1,5}), ([0-9]{1,7})\), \} *\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class NodeArray:
    """A window as NPY: float32 (series, points), NaN for missing data, as `head` describes."""

    head: WindowHead
    values: Singles

    @property
    def start_ns(self) -> int:
        """The wall time of the first point."""
        return self.head.start_ms * MILLISECOND_NS

    @property
    def step_ns(self) -> int:
        """The time from one point to the next."""
        return self.head.resolution_ms * MILLISECOND_NS

    @property
    def newest_ns(self) -> int:
        """The wall time of the newest sample of the daemon."""
        return self.head.history.newest_ms * MILLISECOND_NS

    def both(self, port: str, what: str = "") -> Singles:
        """Transmit and receive rates of a port: float32 (2, points), NaN if the window does not have it.

        `what` names another value than the rate: `uncertainty`.
        """
        out = np.full((2, self.head.points), np.nan, dtype=np.float32)
        for way, direction in enumerate(DIRECTIONS):
            name = f"{port} {direction} {what}".rstrip()
            if name in self.head.series:
                out[way] = self.values[self.head.series.index(name)]
        return out

    def merged(self, port: str) -> npt.NDArray[np.bool_]:
        """The samples of a port that were above the line rate, and merged: bool (2, points)."""
        out = np.zeros((2, self.head.points), dtype=np.bool_)
        ways = {f"{port} {direction}": way for way, direction in enumerate(DIRECTIONS)}
        for row, first, count in self.head.implausible.places:
            way = ways.get(self.head.series[row]) if row < len(self.head.series) else None
            if way is not None:
                out[way, first : first + count] = True
        return out

    def encode(self) -> tuple[bytes, str]:
        """The body, and the value of the header `X-Ibpulse-Window`."""
        # not orjson or pydantic, because headers are ASCII only
        return encode_npy(self.values), json.dumps(self.head.model_dump(), separators=(",", ":"))


def encode_npy(values: Singles) -> bytes:
    """An array of float32 in the format of NumPy."""
    head = io.BytesIO()
    values = np.ascontiguousarray(values, dtype="<f4")
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(values))
    return b"".join((head.getvalue(), values.data))


def read_window(answer: PeerAnswer) -> WindowAnswer:
    """The checked window of an answer in JSON.

    Raises:
        DaemonError: it is not such an answer.
    """
    window = read_answer(WindowAnswer, answer)
    lengths = {len(values) for one in window.series for values in (one.values, one.uncertainty) if values is not None}
    if lengths - {window.points}:
        raise DaemonError(
            f"its answer is not as expected: series of other lengths than points; {NOT_OURS}", kind="bad-answer"
        )
    return window


def read_array(answer: PeerAnswer) -> NodeArray:
    """The checked window of an answer in the format of NumPy.

    Raises:
        DaemonError: it is not such an answer.
    """
    if answer.media_type != NPY_TYPE or WINDOW_HEADER not in answer.headers:
        raise DaemonError(f"its answer is not an array; {NOT_OURS}", kind="bad-answer")
    head = read_members(WindowHead, answer.headers[WINDOW_HEADER])
    shape = (len(head.series), head.points)
    found = _NPY_HEAD.match(answer.body)
    if found is None or int.from_bytes(found[1], "little") != found.end() - found.end(1):
        raise DaemonError(f"its answer is not an array; {NOT_OURS}", kind="bad-answer")
    size = 4 * shape[0] * shape[1]
    if (int(found[2]), int(found[3])) != shape or len(answer.body) - found.end() != size:
        raise DaemonError(f"its answer is an array of another shape than it says; {NOT_OURS}", kind="bad-answer")
    values = np.frombuffer(answer.body, "<f4", offset=found.end()).reshape(shape).copy()
    missing = np.isnan(values)
    if np.isinf(values).any() or (values[~missing] < 0).any():
        raise DaemonError(f"its answer has rates that are negative or infinite; {NOT_OURS}", kind="bad-answer")
    # one of many bit patterns
    values[missing] = np.nan
    return NodeArray(head, values)
