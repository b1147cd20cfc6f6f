"""What `helm install` prints: three next commands, and a warning for what will go wrong."""

from __future__ import annotations

import pytest

from ibpulse import __version__
from tests.campaigns.chart.rendering import Document, needs_helm, notes

pytestmark = needs_helm


def test_the_next_three_commands_are_there_and_nothing_warns_of_the_charts_own_values() -> None:
    text = notes()
    assert "kubectl -n monitoring rollout status daemonset/r-ibpulse\n" in text
    assert "kubectl -n monitoring port-forward daemonset/r-ibpulse 10055   # then open http://localhost:10055/" in text
    assert "helm test r -n monitoring\n" in text
    assert "WARNING" not in text
    assert "NOTE: nothing scrapes the pods yet." in text


def test_the_pod_security_level_that_the_namespace_needs_is_named() -> None:
    assert "which the levels baseline and restricted forbid." in notes()
    assert "kubectl label namespace monitoring pod-security.kubernetes.io/enforce=privileged --overwrite" in notes()
    assert "fifo.enabled adds root with SYS_NICE" in notes({"fifo": {"enabled": True}})


@pytest.mark.parametrize("limit", ["200m", "999m", "0.5", 0.5])
def test_a_limit_below_one_core_is_warned_of(limit: object) -> None:
    assert f"WARNING: resources.limits.cpu is {limit}." in notes({"resources": {"limits": {"cpu": limit}}})


@pytest.mark.parametrize("limit", ["1", 1, "1000m", "2", None])
def test_a_limit_of_a_core_or_more_is_not(limit: object) -> None:
    assert "resources.limits.cpu" not in notes({"resources": {"limits": {"cpu": limit}}})


HASH = "$2b$10$" + "x" * 53
WARNED: list[tuple[Document, str]] = [
    ({"podMonitor": {"enabled": True}}, "podMonitor.enabled, but this cluster has no PodMonitor resource"),
    ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled, but this cluster has no ServiceMonitor resource"),
    ({"prometheusRule": {"enabled": True}}, "prometheusRule.enabled, but this cluster has no PrometheusRule resource"),
    ({"resources": {"limits": {"memory": "112Mi"}}}, "resources.limits.memory is 112Mi."),
    (
        {"ring": {"ports": 64, "sizeLimit": "128Mi"}},
        "take 234 MB; with less, captures are refused, or the kernel kills the container.",
    ),
    (
        {"podMonitor": {"enabled": True}, "webConfig": {"existingSecret": "x", "tls": True}},
        "webConfig turns TLS on, but podMonitor.tlsConfig is empty",
    ),
    (
        {"gateway": {"enabled": True, "serviceMonitor": {"enabled": True}}},
        "gateway.serviceMonitor.enabled, but this cluster has no ServiceMonitor resource",
    ),
    (
        {"gateway": {"enabled": True}, "webConfig": {"content": {"basic_auth_users": {"a": HASH}}}},
        "webConfig protects the nodes, but gateway.nodeConfig is empty, so they may refuse the gateway.",
    ),
    (
        {"gateway": {"enabled": True, "nodeConfig": {"existingSecret": "nodes"}}},
        "gateway.nodeConfig is set, but gateway.webConfig is empty: everyone who can reach the gateway reads",
    ),
]


@pytest.mark.parametrize(("values", "said"), WARNED, ids=[said[:40] for _, said in WARNED])
def test_what_will_go_wrong_is_warned_of(values: Document, said: str) -> None:
    assert said in notes(values)


def test_a_gateway_has_its_own_address_and_no_warning_if_both_its_sides_are_protected() -> None:
    assert "gateway" not in notes()
    web, nodes = {"existingSecret": "web", "tls": True}, {"existingSecret": "nodes"}
    text = notes({"gateway": {"enabled": True, "nodeConfig": nodes, "webConfig": web}, "webConfig": web})
    assert "port-forward service/r-ibpulse-gateway 10056   # then open https://localhost:10056/\n" in text
    assert "WARNING" not in text


def test_the_default_limit_is_enough_for_the_ring_of_16_ports() -> None:
    assert "resources.limits.memory" not in notes({"ring": {"ports": 16}})


def test_captures_on_the_node_say_how_their_directory_is_made() -> None:
    text = notes({"captures": {"volume": "hostPath", "hostPath": "/data"}})
    assert "install -d -m 0770 -o 65532 -g 65532 /data\n" in text
    text = notes({"captures": {"volume": "hostPath", "hostPath": "/data"}, "fifo": {"enabled": True}})
    assert "install -d -m 0770 -o root -g 65532 /data\n" in text


def test_an_image_without_a_registry_is_noted() -> None:
    assert f"image.registry is empty: ibpulse:{__version__} must already be on the nodes." in notes()
    assert "image.registry is empty" not in notes({"image": {"registry": "registry.example.com"}})


def test_links_that_lead_nowhere_are_noted() -> None:
    links = {"runbooks": "https://git.example.com/docs", "grafana": "https://grafana.example.com"}
    said = "links in notifications lead nowhere"
    assert said in notes({"prometheusRule": {"enabled": True}})
    assert said in notes({"prometheusRule": {"enabled": True, **links, "grafana": "/"}})
    assert said not in notes({"prometheusRule": {"enabled": True, **links}})
    assert said not in notes()


def test_without_a_service_the_third_command_shows_the_log() -> None:
    text = notes({"service": {"enabled": False}, "webConfig": {"existingSecret": "x", "tls": True}})
    assert "kubectl -n monitoring logs daemonset/r-ibpulse\n" in text
    assert "helm test" not in text
    assert "https://localhost:10055/" in text
