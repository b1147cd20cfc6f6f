"""Which alerts are of this node, which were captured already, and what a capture of them says."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import pytest

from ibpulse.agent.flightrecorder.alerts import AlertReceiver, is_own_address, make_trigger
from ibpulse.core.captures import REMEMBERED, Alert, host_of, join_labels, parse_start

NOW_NS = 1_763_683_200 * 10**9
MINUTE_NS = 60 * 10**9


def alert(labels: Mapping[str, str], fingerprint: str = "f", *, firing: bool = True, starts_ns: int = NOW_NS) -> Alert:
    return Alert(fingerprint, firing, {"alertname": "Stalled", **labels}, starts_ns)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"severity": "page"},
        {"instance": ""},
        {"instance": "gpu7:10055"},
        {"instance": "GPU7.cluster.example.org:10055"},
        {"instance": "localhost:10055"},
        {"instance": "127.0.0.1:10055"},
        {"instance": "[::1]:10055"},
        {"node": "gpu7.cluster.example.org"},
        {"nodename": "gpu7"},
        {"hostname": "gpu7"},
        {"instance": "10.255.255.254:9100", "node": "gpu7"},
    ],
    ids=str,
)
def test_an_alert_for_this_node_or_without_a_node_is_chosen(labels: Mapping[str, str]) -> None:
    receiver = AlertReceiver(("gpu7",), MINUTE_NS)
    assert receiver.choose([alert(labels)], NOW_NS) == [alert(labels)]


@pytest.mark.parametrize(
    "labels",
    [
        {"instance": "gpu8:10055"},
        {"instance": "gpu77:10055"},
        {"instance": "203.0.113.7:10055"},
        {"instance": "[2001:db8::7]:10055"},
        {"instance": "0.0.0.0:10055"},
        {"node": "gpu8"},
        {"hostname": "gpu7.elsewhere.example.org"},
    ],
    ids=str,
)
def test_an_alert_of_another_node_is_passed_over(labels: Mapping[str, str]) -> None:
    names = ("gpu7.cluster.example.org",) if "hostname" in labels else ("gpu7",)
    assert AlertReceiver(names, MINUTE_NS).choose([alert(labels)], NOW_NS) == []


def test_a_resolved_alert_is_passed_over() -> None:
    assert AlertReceiver(("gpu7",), MINUTE_NS).choose([alert({}, firing=False)], NOW_NS) == []


def test_an_alert_is_captured_again_after_the_cooldown_alone() -> None:
    receiver, first, other = AlertReceiver(("gpu7",), MINUTE_NS), alert({}, "f"), alert({}, "g")
    receiver.remember(receiver.choose([first], NOW_NS), NOW_NS)
    assert receiver.choose([first, other], NOW_NS + MINUTE_NS - 1) == [other]
    assert receiver.choose([first], NOW_NS + MINUTE_NS) == [first]


def test_the_receiver_forgets_the_oldest_alerts() -> None:
    receiver = AlertReceiver(("gpu7",), MINUTE_NS)
    alerts = [alert({}, str(number)) for number in range(REMEMBERED + 1)]
    receiver.remember(alerts, NOW_NS)
    assert receiver.choose(alerts, NOW_NS) == [alerts[0]]


def test_a_capture_lies_around_the_start_of_the_first_alert() -> None:
    chosen = [alert({"device": "mlx5_1"}, starts_ns=NOW_NS - 20), alert({"device": "mlx5_2"}, starts_ns=NOW_NS - 30)]
    trigger = make_trigger(chosen, NOW_NS, NOW_NS - 100)
    assert (trigger.origin, trigger.reason, trigger.instant_ns) == ("alertmanager", "Stalled", NOW_NS - 30)
    assert trigger.labels == {"alertname": "Stalled", "device": "mlx5_1,mlx5_2"}


@pytest.mark.parametrize("starts_ns", [None, NOW_NS - 101, NOW_NS + 1])
def test_a_start_that_the_ring_does_not_hold_is_now(starts_ns: int | None) -> None:
    trigger = make_trigger([Alert("f", True, {}, starts_ns)], NOW_NS, NOW_NS - 100)
    assert (trigger.reason, trigger.instant_ns) == ("alert", NOW_NS)


def test_joined_labels_are_bounded() -> None:
    joined = join_labels([{"a": f"{number:03d}" * 20} for number in range(100)])
    assert len(joined["a"]) == 1000


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("gpu7:10055", "gpu7"),
        ("gpu7", "gpu7"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("[::1]", "::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("gpu7:", "gpu7:"),
    ],
)
def test_the_host_of_an_instance(instance: str, host: str) -> None:
    assert host_of(instance) == host


def test_own_addresses_are_known_without_asking_anybody() -> None:
    assert is_own_address(ipaddress.ip_address("127.0.0.1"))
    assert not is_own_address(ipaddress.ip_address("192.0.2.1"))
    assert not is_own_address(ipaddress.ip_address("::"))


@pytest.mark.parametrize(
    ("text", "instant_ns"),
    [
        ("2025-11-21T00:00:00Z", NOW_NS),
        ("2025-11-21T01:00:00.123456789+01:00", NOW_NS + 123_456_789),
        ("2025-11-21t00:00:00.000000001z", NOW_NS + 1),
        ("2025-11-21T00:00:00.5Z", NOW_NS + 500_000_000),
        ("0001-01-01T00:00:00Z", None),
        ("2025-11-21T00:00:00", None),
        ("2025-02-30T00:00:00Z", None),
        ("1763683200000", None),
        ("soon", None),
        ("", None),
    ],
)
def test_the_start_of_an_alert(text: str, instant_ns: int | None) -> None:
    assert parse_start(text) == instant_ns
