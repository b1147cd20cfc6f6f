"""Server-sent events as bytes (HTML Living Standard, 9.2). It must not read anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ibpulse.model import Port
from ibpulse.units import MILLISECOND_NS

BYTES_PER_MEGABYTE = 1e6
# what a client that reconnects by itself waits
RETRY = b"retry: 2000\n\n"
# a comment, which keeps proxies from closing a quiet connection
HEARTBEAT = b":\n\n"
END = b"event: end\ndata: {}\n\n"


def event(name: str, data: bytes, identity: int | None = None) -> bytes:
    """One event; a client that reconnects says the last `identity` that it saw."""
    head = b"" if identity is None else b"id: %d\n" % identity
    return b"%bevent: %b\ndata: %b\n\n" % (head, name.encode(), data)


def ports_event(ports: Sequence[Port], interval_ns: int, history_ns: int, version: str) -> bytes:
    """What the batches that follow are about: two series of each port, transmit before receive, in this order."""
    rows = [
        {
            "port": str(port.id),
            "rail": port.rail,
            "active": port.active,
            "state": port.state,
            "rate_bytes_per_second": port.rate_bytes_per_second,
        }
        for port in ports
    ]
    document = {
        "version": version,
        "interval_ms": interval_ns // MILLISECOND_NS,
        "history_ms": history_ns // MILLISECOND_NS,
        "ports": rows,
    }
    return event("ports", orjson.dumps(document))


def batch_event(last_tick: int, start_ns: int, bytes_per_second: npt.NDArray[np.float64]) -> bytes:
    """The rates of some ticks in whole MB/s, null in holes; its identity is the last tick."""
    # rates are never negative, so -1 can stand for a hole until the numbers are text
    whole = np.nan_to_num(np.rint(bytes_per_second / BYTES_PER_MEGABYTE), nan=-1.0).astype(np.int32)
    numbers = orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY).replace(b"-1", b"null")
    data = b'{"start_ms":%d,"megabytes_per_second":%b}' % (start_ns // MILLISECOND_NS, numbers)
    return event("batch", data, last_tick)


def gap_event(start_ns: int, end_ns: int) -> bytes:
    """The span that is not sent although it was asked for: too long ago."""
    span = {"start_ms": start_ns // MILLISECOND_NS, "end_ms": end_ns // MILLISECOND_NS}
    return event("gap", orjson.dumps(span))


def dropped_event(events: int) -> bytes:
    """How many events the viewer did not get because it was too slow."""
    return event("dropped", orjson.dumps({"events": events}))


def summary_event(document: dict[str, Any]) -> bytes:
    """The node's numbers of a second."""
    return event("summary", orjson.dumps(document))
