"""Alerts of Alertmanager's notifications: their labels, and those that were captured lately."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ibpulse.base.instants import parse_rfc3339
from ibpulse.base.units import SECOND_NS

NODE_LABELS = ("instance", "node", "nodename", "hostname")
REMEMBERED = 1000
# between two captures of the same rule or alert
COOLDOWN_NS = 600 * SECOND_NS
_LABEL_LENGTH = 1000
_BRACKETED = re.compile(r"\[(.*)\](?::[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a notification."""

    fingerprint: str
    firing: bool
    labels: Mapping[str, str]
    starts_ns: int | None = None


class Cooldown:
    """Remembers the newest keys that were captured, each for `length_ns` of the monotonic clock."""

    def __init__(self, length_ns: int) -> None:
        self._length_ns = length_ns
        self._captured_ns: dict[str, int] = {}

    def covers(self, key: str, now_ns: int) -> bool:
        """Whether the key was captured so recently that it is not captured again."""
        captured_ns = self._captured_ns.get(key)
        return captured_ns is not None and now_ns - captured_ns < self._length_ns

    def begin(self, key: str, now_ns: int) -> None:
        """Record a capture; of more than `REMEMBERED` keys, the oldest is forgotten."""
        self._captured_ns.pop(key, None)
        self._captured_ns[key] = now_ns
        while len(self._captured_ns) > REMEMBERED:
            del self._captured_ns[next(iter(self._captured_ns))]

    def cancel(self, key: str) -> None:
        """Forget a key whose capture failed."""
        self._captured_ns.pop(key, None)


def join_labels(labels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The labels of several alerts as one set; different values of a label are joined by commas."""
    joined: dict[str, list[str]] = {}
    for one in labels:
        for name, value in one.items():
            values = joined.setdefault(name, [])
            if value not in values:
                values.append(value)
    return {name: ",".join(values)[:_LABEL_LENGTH] for name, values in joined.items()}


def host_of(instance: str) -> str:
    """The host in `host:port`, `[address]:port` or `host`."""
    bracketed = _BRACKETED.fullmatch(instance)
    if bracketed:
        return bracketed[1].lower()
    host, colon, port = instance.rpartition(":")
    return (host if colon and port.isdigit() and ":" not in host else instance).lower()


def parse_start(text: str) -> int | None:
    """Wall time (ns) at which an alert began; None for an invalid time and for Go's zero time (year 1)."""
    try:
        start_ns = parse_rfc3339(text)
    except ValueError:
        return None
    return start_ns if start_ns >= 0 else None
