"""What security scanners say of the chart: nothing but what is listed here, with the reason why it is left so."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.campaigns.chart.rendering import needs_helm, render_text

pytestmark = needs_helm

NO_LIMIT = "a quota makes the sampler lose ticks: 11 % of them at 200m"
NO_LIMIT_EITHER = "a quota delays the requests that measure the clocks of the nodes"
TAG = "the tag is that of the release; image.digest pins it"
PULL = "a tag of a release never changes, and a registry that is down must not keep a node's pod from starting"
SHORT = "the pod of `helm test` asks once and ends"
CAPTURES = "captures, its only growing files, are bounded by their own volume and by capture.max-bytes"

CHECKOV = {
    ("CKV_K8S_11", "DaemonSet"): NO_LIMIT,
    ("CKV_K8S_11", "Deployment"): NO_LIMIT_EITHER,
    ("CKV_K8S_43", "DaemonSet"): TAG,
    ("CKV_K8S_43", "Deployment"): TAG,
    ("CKV_K8S_43", "Pod"): TAG,
    ("CKV_K8S_15", "DaemonSet"): PULL,
    ("CKV_K8S_15", "Deployment"): PULL,
    ("CKV_K8S_15", "Pod"): PULL,
    ("CKV_K8S_8", "Pod"): SHORT,
    ("CKV_K8S_9", "Pod"): SHORT,
    ("CKV2_K8S_6", "Pod"): SHORT,
}
KUBE_SCORE = {
    ("container-resources", "DaemonSet"): NO_LIMIT,
    ("container-resources", "Deployment"): NO_LIMIT_EITHER,
    ("container-ephemeral-storage-request-and-limit", "DaemonSet"): CAPTURES,
    ("container-image-pull-policy", "DaemonSet"): PULL,
    ("container-image-pull-policy", "Deployment"): PULL,
    ("container-image-pull-policy", "Pod"): PULL,
    ("pod-networkpolicy", "Pod"): SHORT,
}
WORST_GRADE_THAT_PASSES = 10


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The chart with its own values, scraped, with rules and with gateways."""
    path = tmp_path / "chart.yaml"
    enabled = {"enabled": True}
    values = {"podMonitor": enabled, "prometheusRule": enabled, "gateway": {**enabled, "replicas": 2}}
    path.write_text(render_text(values))
    return path


@pytest.mark.needs("checkov")
def test_checkov_finds_only_what_has_a_reason(manifest: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["checkov", "--file", str(manifest), "--framework=kubernetes", "--skip-download", "--output=json", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        # proxies of the test's own environment are not for a scanner
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    report = json.loads(done.stdout)
    failed = {(check["check_id"], check["resource"].split(".")[0]) for check in report["results"]["failed_checks"]}
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 100
    assert failed == set(CHECKOV)


@pytest.mark.needs("kube-score")
def test_kube_score_finds_only_what_has_a_reason(manifest: Path) -> None:
    done = subprocess.run(
        ["kube-score", "score", "--kubernetes-version=v1.31", "--output-format=json", str(manifest)],
        check=False,
        capture_output=True,
        text=True,
    )
    failed = {
        (check["check"]["id"], item["type_meta"]["kind"])
        for item in json.loads(done.stdout)
        for check in item["checks"]
        if not check["skipped"] and check["grade"] < WORST_GRADE_THAT_PASSES
    }
    assert failed == set(KUBE_SCORE)
