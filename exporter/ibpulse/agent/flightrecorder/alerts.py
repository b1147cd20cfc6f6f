"""Decides which Alertmanager notifications (webhook, version 4) trigger a capture, and its instant.

Source: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence

from ibpulse.agent.flightrecorder.rules import ALERTMANAGER, Trigger
from ibpulse.core.captures import NODE_LABELS, Alert, Cooldown, host_of, join_labels


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


def _same_host(host: str, name: str) -> bool:
    """Whether two host names are equal, or one is the short form of the other."""
    if "." in host and "." in name:
        return host == name
    return host.partition(".")[0] == name.partition(".")[0]
