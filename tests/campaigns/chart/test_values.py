"""Values that are wrong or unknown are refused with a sentence that helps, and every value is documented."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import yaml

from tests.campaigns.chart.rendering import CHART, Document, at_path, needs_helm, refusal, render
from tests.tables import for_each

pytestmark = needs_helm

OPEN = {"global", "kubernetesObject", "kubernetesList", "extraManifests", "extraGroupFields"}
"""What may hold anything: Helm's own map for charts in charts, objects that the API server checks, rulers' fields."""

WHOLE = {"alerts", "thresholds", "webConfig", "serviceAccount"}
"""Definitions of maps that have a default for each of their keys."""

WRONG: list[tuple[str, object, str]] = [
    ("resource", {}, "additional properties 'resource' not allowed"),
    ("image.pullPolicy", "Sometimes", "value must be one of 'Always', 'IfNotPresent', 'Never'"),
    ("image.digest", "e3b0c442", "value must be 'a digest, like sha256: and 64 hexadecimal digits'"),
    ("port", 80, "at '/port': minimum: got 80, want 1,024"),
    ("port", "10055", "at '/port': got string, want integer"),
    ("ring.sizeLimit", "64MB", "value must be 'a quantity of bytes, like 64Mi or 2Gi'"),
    ("captures.volume", "disk", "must be one of 'emptyDir', 'hostPath', 'existingClaim', 'ephemeral'"),
    ("captures.hostPath", "data", "value must be 'an absolute path, like /sys'"),
    ("resources.limits.cpu", "200 m", "value must be 'a number of cores, like 2, 0.5 or 500m'"),
    ("podLabels.app", True, "value must be 'a label: a quoted text of at most 63 letters"),
    ("podAnnotations.count", 3, "value must be 'an annotation: a text, so quote numbers and true or false'"),
    ("nodePreset", "gpu", "must be one of 'any', 'nfd-pci', 'nfd-rdma', 'network-operator'"),
    ("extraArgs", ["log.level=debug"], "value must be 'a flag of ibpulse serve, like --log.level=debug'"),
    ("podMonitor.enabled", "yes", "at '/podMonitor/enabled': got string, want boolean"),
    ("podMonitor.interval", 15, "value must be 'a duration with its unit, like 15s'"),
    ("terminationGracePeriodSeconds", 1, "minimum: got 1, want 5"),
    ("webConfig.content.tls_server_config.cert", 1, "at '/webConfig/content/tls_server_config/cert'"),
    ("config.sampler.interval", 10, "value must be 'a duration with its unit, like 10ms, 5m or 1h30m'"),
    ("config.analysis.active-threshold", "0.1", "value must be 'a rate in bytes, like 0.1GB/s or 50MB/s'"),
    ("config.analysis.moe-saturation-duty", 2, "value must be 'a ratio from 0 to 1, like 0.85'"),
    ("config.ports.expected-rails", "many", "value must be 'a whole number, like 2'"),
    ("config.sampler.cpu", "all", "value must be 'a CPU number, like 2'"),
    ("config.log.level", "loud", "value must be one of 'debug', 'info', 'warning', 'error'"),
    ("config.samplers.interval", "10ms", "at '/config': additional properties 'samplers' not allowed"),
    ("config.path.sysfs", "/sys", "config.path.sysfs: the chart sets this itself; use the value sysfs.hostPath"),
    ("config.ring.dir", "/ring", "the chart sets this itself; use the value ring.sizeLimit"),
    ("config.capture.dir", "/captures", "the chart sets this itself; use the value captures.volume"),
    ("config.web.listen-address", ":1", "the chart sets this itself; use the value port"),
    ("config.sampler.scheduler", "fifo", "the chart sets this itself; use the value fifo.enabled"),
    ("prometheusRule.thresholds.moeFor", "5", "value must be 'a Prometheus duration with one unit, like 5m'"),
    ("prometheusRule.thresholds.moeFor", None, "missing property 'moeFor'"),
    ("prometheusRule.thresholds.moeShare", "0.8", "value must be 'a number, like 0.8'"),
    ("prometheusRule.jobs", 'a"} or vector(1)', "value must be 'a regular expression without blanks"),
    ("prometheusRule.runbooks", "{{ here }}", "value must be 'an address without blanks and quotation marks'"),
    ("prometheusRule.alerts.IBPulseRailIdle.severity", "page", "must be one of 'critical', 'warning', 'info'"),
    ("prometheusRule.alerts.IBPulseRailIdle.otherwise", "info", "additional properties 'otherwise' not allowed"),
    ("prometheusRule.alerts.RailIdle.enabled", False, "additional properties 'RailIdle' not allowed"),
    ("prometheusRule.additionalRuleLabels.severity", "info", "severity"),
    ("prometheusRule.maintenance", "a\nb", "value must be 'PromQL in one line'"),
    ("prometheusRule.shards", 0, "minimum: got 0, want 1"),
    ("gateway.replicas", 0, "at '/gateway/replicas': minimum: got 0, want 1"),
    ("gateway.sources", ["nodes.yml"], "value must be 'a source of nodes, like dns+ibpulse.monitoring.svc:10055"),
    ("gateway.nodeConfig.content.tls_config.insecure_skip_verify", True, "'insecure_skip_verify' not allowed"),
    ("gateway.webConfig.content.basic_auth_users.a", "secret", "value must be 'a bcrypt hash, as `htpasswd"),
    ("gateway.service.type", "ExternalName", "must be one of 'ClusterIP', 'NodePort', 'LoadBalancer'"),
    ("webConfig.content.basic_auth_users.a", "secret", "value must be 'a bcrypt hash, as `htpasswd -nBC 10 NAME`"),
    (
        "webConfig.content.tls_server_config.client_auth_type",
        "RequestClientCert",
        "must be one of 'NoClientCert', 'VerifyClientCertIfGiven', 'RequireAndVerifyClientCert'",
    ),
]

PROFILE = {"name": "a", "label": "site", "values": ["lab"]}
TOGETHER: list[tuple[Document, str]] = [
    ({"profiles": [PROFILE, PROFILE]}, "profiles: two have the name a"),
    ({"profiles": [{**PROFILE, "config": {"sampler": {"intervall": "5ms"}}}]}, "intervall"),
    (
        {"profiles": [{**PROFILE, "config": {"sampler": {"interval": "1ms"}}}]},
        "cannot hold the samples of 16 ports",
    ),
    (
        {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "podMonitor.enabled and serviceMonitor.enabled: every pod would be scraped twice; switch one of them off",
    ),
    (
        {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}},
        "serviceMonitor.enabled: it finds pods through the Service; set service.enabled=true, or use "
        "podMonitor.enabled",
    ),
    (
        {"webConfig": {"existingSecret": "a", "content": {"basic_auth_users": {}}}},
        "webConfig.existingSecret and webConfig.content: only one file can be used; leave one of them empty",
    ),
    (
        {"gateway": {"enabled": True}, "service": {"enabled": False}},
        "gateway.enabled: it finds the nodes through the Service; set service.enabled=true, or give gateway.sources",
    ),
    (
        {"gateway": {"nodeConfig": {"existingSecret": "a", "content": {"basic_auth": {"username": "a"}}}}},
        "gateway.nodeConfig.existingSecret and gateway.nodeConfig.content: only one file can be used; leave one of "
        "them empty",
    ),
    (
        {"captures": {"volume": "existingClaim"}},
        "captures.volume: existingClaim needs the name of a claim; set captures.existingClaim",
    ),
    (
        {"ring": {"sizeLimit": "16Mi"}},
        "ring.sizeLimit: 16Mi cannot hold the samples of 16 ports, which are 29 MB; "
        "raise it, and resources.limits.memory with it, or shorten config.sampler.history",
    ),
    (
        {
            "nodePreset": "nfd-pci",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        },
        "nodePreset: nfd-pci and a required affinity.nodeAffinity both choose nodes; set nodePreset=any, or choose by "
        "nodeSelector",
    ),
]


def schema() -> Document:
    """The schema of the values."""
    found: Document = json.loads((CHART / "values.schema.json").read_text())
    return found


@for_each(WRONG)
def test_a_wrong_or_unknown_value_is_refused(name: str, value: object, said: str) -> None:
    assert said in refusal(at_path(name.split("."), value))


@for_each(TOGETHER)
def test_values_that_cannot_be_together_are_refused(values: Document, said: str) -> None:
    assert said in refusal(values)


def test_a_parent_chart_may_hand_down_its_globals() -> None:
    assert render({"global": {"imageRegistry": "registry.example.com", "anything": [1]}}) == render()


def _objects(place: Any, name: str) -> Iterator[tuple[str, Document]]:
    """Every schema of an object, with the name of the property or definition that it is."""
    if isinstance(place, dict):
        if place.get("type") == "object" or "properties" in place:
            yield name, place
        for key, inner in place.items():
            yield from _objects(inner, name if key in ("items", "additionalProperties", "if", "properties") else key)
    elif isinstance(place, list):
        for inner in place:
            yield from _objects(inner, name)


def test_no_map_takes_keys_that_nobody_reads() -> None:
    root = schema()
    jsonschema.Draft7Validator.check_schema(root)
    found = dict(_objects(root, ""))
    assert len(found) > 20
    open_maps = {name for name, place in _objects(root, "") if "additionalProperties" not in place}
    assert open_maps <= OPEN


def test_the_schema_knows_every_value_with_its_default_and_has_nothing_else() -> None:
    root, defaults = schema(), yaml.safe_load((CHART / "values.yaml").read_text())
    assert list(jsonschema.Draft7Validator(root).iter_errors(defaults)) == []

    def compare(place: Document, values: Document, path: str) -> Iterator[str]:
        while "$ref" in place:
            place = root["definitions"][place["$ref"].rpartition("/")[2]]
        for name in set(place.get("properties", {})) ^ set(values):
            yield f"{path}.{name}"
        for name, value in values.items():
            if isinstance(value, dict) and value and name not in OPEN:
                inner = place["properties"].get(name, {})
                if "properties" in inner or inner.get("$ref", "").rpartition("/")[2] in WHOLE:
                    yield from compare(inner, value, f"{path}.{name}")

    # what may be left out of a map of these has no default
    optional = re.compile(r"\.((startup|liveness|readiness)Probe|updateStrategy|affinity)\b")
    assert [path for path in compare(root, defaults, "") if not optional.match(path)] == []
