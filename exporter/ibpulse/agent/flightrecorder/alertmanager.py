"""Decides which Alertmanager notifications (webhook, version 4) trigger a capture, and its instant.

Source: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ibpulse.agent.flightrecorder.rules import ALERTMANAGER, Trigger
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


class AlertReceiver:
    """Selects the alerts that trigger a capture: those firing on this node, each once per cool-down.

    Times are those of the monotonic clock.
    """

    def __init__(self, names: Collection[str], cooldown_ns: int) -> None:
        self._names = tuple(name.lower() for name in names)
        self._cooldown = Cooldown(cooldown_ns)

    def choose(self, alerts: Iterable[Alert], now_ns: int) -> list[Alert]:
        """The firing alerts that name this node or no node and were not captured within the cool-down."""
        return [
            alert
            for alert in alerts
            if alert.firing and self._is_here(alert.labels) and not self._cooldown.covers(alert.fingerprint, now_ns)
        ]

    def remember(self, alerts: Iterable[Alert], now_ns: int) -> None:
        """Record that these alerts were captured."""
        for alert in alerts:
            self._cooldown.begin(alert.fingerprint, now_ns)

    def _is_here(self, labels: Mapping[str, str]) -> bool:
        named = [host_of(labels[label]) for label in NODE_LABELS if labels.get(label)]
        return not named or any(self._is_mine(host) for host in named)

    def _is_mine(self, host: str) -> bool:
        try:
            return is_own_address(ipaddress.ip_address(host))
        except ValueError:
            return host == "localhost" or any(_same_host(host, name) for name in self._names)


def make_trigger(alerts: Sequence[Alert], now_ns: int, oldest_ns: int) -> Trigger:
    """The trigger for these alerts at their earliest start, or at `now_ns` if none began since `oldest_ns`."""
    starts = [alert.starts_ns for alert in alerts if alert.starts_ns is not None]
    began_ns = min((start for start in starts if oldest_ns <= start <= now_ns), default=now_ns)
    labels = join_labels([alert.labels for alert in alerts])
    return Trigger(ALERTMANAGER, labels.get("alertname", "alert"), began_ns, labels)


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


def is_own_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address belongs to this node, checked by binding a socket to it. Sends no packet."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    if address.is_unspecified:
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def parse_start(text: str) -> int | None:
    """Wall time (ns) at which an alert began; None for an invalid time and for Go's zero time (year 1)."""
    try:
        start_ns = parse_rfc3339(text)
    except ValueError:
        return None
    return start_ns if start_ns >= 0 else None


def _same_host(host: str, name: str) -> bool:
    """Whether two host names are equal, or one is the short form of the other."""
    if "." in host and "." in name:
        return host == name
    return host.partition(".")[0] == name.partition(".")[0]
