"""Which devices and ports are read, decided from names alone.

A pattern is a shell pattern for a device (`mlx5_0`, `mlx5_*`) or for a port of one (`mlx5_0:1`, `*:2`).
A port is looked at when it matches an include pattern, or there are none, and no exclude pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ibpulse.model import PortId


def match_port(pattern: str, port: PortId) -> bool:
    """Whether a device pattern or a port pattern covers the port."""
    device, port_pattern = _split(pattern)
    return fnmatchcase(port.device, device) and fnmatchcase(str(port.port), port_pattern)


@dataclass(frozen=True, slots=True)
class Selection:
    """The include and exclude patterns of a node."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def admits_device(self, device: str) -> bool:
        """Whether any port of the device can be looked at; otherwise nothing of it may be touched."""
        if any(port == "*" and fnmatchcase(device, name) for name, port in map(_split, self.exclude)):
            return False
        return not self.include or any(fnmatchcase(device, name) for name, _ in map(_split, self.include))

    def admits_port(self, port: PortId) -> bool:
        """Whether the port can be looked at."""
        if _match_any(self.exclude, port):
            return False
        return not self.include or _match_any(self.include, port)


def _match_any(patterns: Sequence[str], port: PortId) -> bool:
    return any(match_port(pattern, port) for pattern in patterns)


def _split(pattern: str) -> tuple[str, str]:
    device, _, port = pattern.partition(":")
    return device, port or "*"
