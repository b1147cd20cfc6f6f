"""Names of capture files, and the alerts that captures are taken for."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ibpulse.base.instants import parse_rfc3339
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS

NODE_LABELS = ("instance", "node", "nodename", "hostname")
REMEMBERED = 1000
# between two captures of the same rule or alert
COOLDOWN_NS = 600 * SECOND_NS
_LABEL_LENGTH = 1000
_BRACKETED = re.compile(r"\[(.*)\](?::[0-9]+)?")
REASON_LENGTH = 64
_NAME = re.compile(r"([0-9]{8}T[0-9]{6})\.([0-9]{3})Z-([A-Za-z0-9][A-Za-z0-9-]{0,63})-([0-9a-f]{8})\.parquet", re.ASCII)
_FORMAT = "%Y%m%dT%H%M%S"
MEDIA_TYPE = "application/vnd.apache.parquet"
TRACE_TYPE, TRACE_SUFFIX = "application/vnd.perfetto.trace", ".perfetto"
"""Of a capture as a trace of Perfetto."""


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


@dataclass(frozen=True, slots=True, order=True)
class CaptureName:
    """A parsed file name: wall time of the trigger in ms, reason, id. Sorts by time."""

    trigger_ms: int
    reason: str
    id: str

    def __str__(self) -> str:
        instant = datetime.fromtimestamp(self.trigger_ms // 1000, UTC)
        return f"{instant.strftime(_FORMAT)}.{self.trigger_ms % 1000:03d}Z-{self.reason}-{self.id}.parquet"


def trace_file(name: object) -> str:
    """The file name of a capture as a trace of Perfetto."""
    return str(name).removesuffix(".parquet") + TRACE_SUFFIX


def make_name(trigger_ns: int, reason: str) -> CaptureName:
    """A new name for a capture, with the reason shortened to the characters that file names allow."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", reason)[:REASON_LENGTH].strip("-")
    return CaptureName(trigger_ns // MILLISECOND_NS, slug or "capture", secrets.token_hex(4))


def parse_name(text: str) -> CaptureName | None:
    """The parsed name, or None if the text is not the name of a capture."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    try:
        instant = datetime.strptime(found[1], _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return CaptureName(int(instant.timestamp()) * 1000 + int(found[2]), found[3], found[4])
