"""What only the metrics of a daemon say, found line by line in its `/metrics`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ibpulse.gateway.nodes.nodes import Node


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """What only metrics have; None if the daemon does not export it.

    `line_rate` is that of the node in bytes per second, transmit and receive together. `idle` and `slow` are the rails
    that are said to be so.
    """

    version: str | None
    line_rate: float | None
    idle: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


FIGURES = tuple(
    ("name[]", name)
    for name in (
        "ibpulse_build_info",
        "ibpulse_node_line_rate_bytes_per_second",
        "ibpulse_port_rail_idle",
        "ibpulse_port_rail_slow",
    )
)
# 256 bytes for each of 1024 rails
MAX_FIGURES_BYTES = 300_000
MAX_RATE = 1e18
_VERSION = re.compile(rb'^ibpulse_build_info\{[^\n]*?\bversion="([0-9A-Za-z.+-]{1,40})"', re.MULTILINE)
_LINE_RATE = re.compile(rb"^ibpulse_node_line_rate_bytes_per_second ([0-9.e+]{1,30})$", re.MULTILINE)
_RAILS = re.compile(rb"^ibpulse_port_rail_(idle|slow)\{([^}\n]{1,500})\} 1(?:\.0)?$", re.MULTILINE)
_DEVICE, _PORT = re.compile(rb'\bdevice="([A-Za-z0-9_.-]{1,64})"'), re.compile(rb'\bport="([0-9]{1,3})"')


async def ask_figures(node: Node) -> NodeFigures:
    """The figures of a node that only its metrics have.

    Raises:
        DaemonError: there is no answer, or the node refuses.
    """
    body = (await node.get("/metrics", FIGURES, max_bytes=MAX_FIGURES_BYTES)).body
    version, line_rate = _VERSION.search(body), _LINE_RATE.search(body)
    return NodeFigures(
        version[1].decode() if version else None,
        _rate(line_rate[1]) if line_rate else None,
        _find_rails(body, b"idle"),
        _find_rails(body, b"slow"),
    )


def _find_rails(body: bytes, word: bytes) -> tuple[str, ...]:
    places = ((_DEVICE.search(labels), _PORT.search(labels)) for said, labels in _RAILS.findall(body) if said == word)
    return tuple(f"{device[1].decode()}:{port[1].decode()}" for device, port in places if device and port)


def _rate(digits: bytes) -> float | None:
    try:
        value = float(digits)
    except ValueError:
        return None
    return value if value <= MAX_RATE else None
