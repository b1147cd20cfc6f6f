"""What a daemon says, as checked values. It must not trust an answer, nor keep anything."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ibpulse.client.connection import Connection
from ibpulse.errors import DaemonError
from ibpulse.model import DIRECTIONS, PortIdentity
from ibpulse.units import MILLISECOND_NS

WINDOW_HEADER = "x-ibpulse-window"


@dataclass(frozen=True, slots=True)
class RemotePort:
    """One port of the daemon's node; `source` is empty and `resolution_seconds` 0 when no file of it counts bytes."""

    device: str
    port: int
    active: bool
    state: str
    rate_bytes_per_second: float | None
    rail: bool
    source: str
    resolution_seconds: float
    identity: PortIdentity

    @property
    def name(self) -> str:
        """As in the names of series: `mlx5_0:1`."""
        return f"{self.device}:{self.port}"


@dataclass(frozen=True, slots=True)
class RemotePorts:
    """The ports of the daemon's node, and the distance of its ticks."""

    interval_ns: int
    ports: tuple[RemotePort, ...]


@dataclass(frozen=True, slots=True)
class RemoteWindow:
    """Rates on a regular grid from `start_ns` on, `step_ns` apart; NaN in holes.

    `values` is float32 (series, points), `series` their names, `mlx5_0:1 transmit`. `newest_ns` is the newest tick that
    the daemon had.
    """

    interval_ns: int
    step_ns: int
    start_ns: int
    newest_ns: int
    series: tuple[str, ...]
    values: npt.NDArray[np.float32]

    def both(self, port: str) -> npt.NDArray[np.float32]:
        """Transmit and receive of a port: float32 (2, points), holes where the daemon has no such port."""
        out = np.full((2, self.values.shape[1]), np.nan, dtype=np.float32)
        for way, direction in enumerate(DIRECTIONS):
            if f"{port} {direction}" in self.series:
                out[way] = self.values[self.series.index(f"{port} {direction}")]
        return out


def ask_ports(connection: Connection) -> RemotePorts:
    """The ports of the node.

    Raises:
        DaemonError: nobody answers, or not as a daemon of ibpulse does.
    """
    body = connection.get("/api/v1/ports").body
    with reading(connection):
        document = orjson.loads(body)
        interval_ns = round(float(document["interval_seconds"]) * 1e9)
        return RemotePorts(interval_ns, tuple(map(_port, document["ports"])))


def ask_window(connection: Connection, query: Sequence[tuple[str, str | int]]) -> RemoteWindow:
    """The window that a query asks for; its parameters are those of `/api/v1/window`.

    Raises:
        DaemonError: nobody answers, the query is refused, or the answer is none of ibpulse's.
    """
    answer = connection.get("/api/v1/window", [*query, ("format", "npy")])
    with reading(connection):
        about = orjson.loads(answer.headers[WINDOW_HEADER])
        values = np.load(io.BytesIO(answer.body), allow_pickle=False)
        if values.dtype != np.float32 or values.shape != (len(about["series"]), about["points"]):
            raise ValueError(f"{values.dtype} values of shape {values.shape}")
        return RemoteWindow(
            interval_ns=about["interval_ms"] * MILLISECOND_NS,
            step_ns=about["resolution_ms"] * MILLISECOND_NS,
            start_ns=about["start_ms"] * MILLISECOND_NS,
            newest_ns=about["history"]["newest_ms"] * MILLISECOND_NS,
            series=tuple(map(str, about["series"])),
            values=values,
        )


def ask_metrics(connection: Connection, names: Sequence[str]) -> dict[str, float]:
    """The sum over all labels of each of these metrics that the daemon has, by name.

    Raises:
        DaemonError: nobody answers, or not as a daemon of ibpulse does.
    """
    text = connection.get("/metrics", [("name[]", name) for name in names]).body.decode(errors="replace")
    found: dict[str, float] = {}
    with reading(connection):
        for line in text.splitlines():
            if line and not line.startswith("#"):
                sample, _, number = line.rpartition(" ")
                name, value = sample.partition("{")[0], float(number)
                if name in names and math.isfinite(value):
                    found[name] = found.get(name, 0.0) + value
    return found


def _port(entry: Mapping[str, Any]) -> RemotePort:
    source = entry["source"] or {"name": "", "resolution_seconds": 0.0}
    rate = entry["rate_bytes_per_second"]
    return RemotePort(
        device=str(entry["device"]),
        port=int(entry["port"]),
        active=bool(entry["active"]),
        state=str(entry["state"]),
        rate_bytes_per_second=None if rate is None else float(rate),
        rail=bool(entry["rail"]),
        source=str(source["name"]),
        resolution_seconds=float(source["resolution_seconds"]),
        identity=PortIdentity(**{name: str(entry["identity"].get(name, "")) for name in PortIdentity.__slots__}),
    )


@contextmanager
def reading(connection: Connection) -> Iterator[None]:
    """Turns what goes wrong while an answer is read into one sentence.

    Raises:
        DaemonError: it went wrong.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DaemonError(
            f"{connection.place} does not answer as ibpulse does ({type(error).__name__}: {str(error)[:200]}); "
            "is it another service, or another version?"
        ) from error
