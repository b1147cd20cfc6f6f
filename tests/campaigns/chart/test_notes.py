"""What `helm install` prints: three next commands, and a warning for what will go wrong."""

from __future__ import annotations

from ibpulse import __version__
from tests.campaigns.chart.rendering import Document, needs_helm, notes
from tests.tables import for_each

pytestmark = needs_helm


def test_the_next_three_commands_are_there_and_nothing_warns_of_the_charts_own_values() -> None:
    text = notes()
    assert "kubectl -n monitoring rollout status daemonset/r-ibpulse\n" in text
    assert "kubectl -n monitoring port-forward daemonset/r-ibpulse 10055   # then open http://localhost:10055/" in text
    assert "helm test r -n monitoring\n" in text
    assert "WARNING" not in text
    assert "NOTE: nothing scrapes the pods yet." in text


HASH = "$2b$10$" + "x" * 53
LINKS = {"runbooks": "https://git.example.com/docs", "grafana": "https://grafana.example.com"}
WEB = {"existingSecret": "web", "tls": True}
SAID: list[tuple[Document, str]] = [
    ({}, "which the levels baseline and restricted forbid."),
    ({}, "kubectl label namespace monitoring pod-security.kubernetes.io/enforce=privileged --overwrite"),
    ({"fifo": {"enabled": True}}, "fifo.enabled adds root with SYS_NICE"),
    *(({"resources": {"limits": {"cpu": cpu}}}, f"WARNING: resources.limits.cpu is {cpu}.") for cpu in ("999m", 0.5)),
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
    (
        {"captures": {"volume": "hostPath", "hostPath": "/data"}},
        "install -d -m 0770 -o 65532 -g 65532 /data\n",
    ),
    (
        {"captures": {"volume": "hostPath", "hostPath": "/data"}, "fifo": {"enabled": True}},
        "install -d -m 0770 -o root -g 65532 /data\n",
    ),
    ({}, f"image.registry is empty: ibpulse:{__version__} must already be on the nodes."),
    ({"prometheusRule": {"enabled": True}}, "links in notifications lead nowhere"),
    ({"prometheusRule": {"enabled": True, **LINKS, "grafana": "/"}}, "links in notifications lead nowhere"),
    ({"service": {"enabled": False}}, "kubectl -n monitoring logs daemonset/r-ibpulse\n"),
    ({"webConfig": WEB}, "https://localhost:10055/"),
    (
        {"gateway": {"enabled": True, "nodeConfig": {"existingSecret": "nodes"}, "webConfig": WEB}, "webConfig": WEB},
        "port-forward service/r-ibpulse-gateway 10056   # then open https://localhost:10056/\n",
    ),
]
NOT_SAID: list[tuple[Document, str]] = [
    *(({"resources": {"limits": {"cpu": limit}}}, "resources.limits.cpu") for limit in ("1", 1, "1000m", None)),
    ({}, "gateway"),
    ({}, "links in notifications lead nowhere"),
    ({"ring": {"ports": 16}}, "resources.limits.memory"),
    ({"image": {"registry": "registry.example.com"}}, "image.registry is empty"),
    ({"prometheusRule": {"enabled": True, **LINKS}}, "links in notifications lead nowhere"),
    ({"service": {"enabled": False}}, "helm test"),
    (
        {"gateway": {"enabled": True, "nodeConfig": {"existingSecret": "nodes"}, "webConfig": WEB}, "webConfig": WEB},
        "WARNING",
    ),
]


@for_each([*((*row, True) for row in SAID), *((*row, False) for row in NOT_SAID)])
def test_what_will_go_wrong_is_said_and_nothing_else(values: Document, words: str, said: bool) -> None:
    assert (words in notes(values)) is said
