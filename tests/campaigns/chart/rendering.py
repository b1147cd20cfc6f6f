"""The chart as the real Helm renders it, each set of values once. It asserts nothing by itself."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT

CHART = ROOT / "helm" / "ibpulse"
CASES = sorted((CHART / "ci").glob("*-values.yaml"))
RELEASE, NAMESPACE = "r", "monitoring"
NEWEST = "1.37"

Values = Mapping[str, Any]
Document = dict[str, Any]


needs_helm = pytest.mark.needs("helm")


def render(values: Values | None = None, version: str = NEWEST) -> list[Document]:
    """The objects that `helm template` makes of the values, for a version of Kubernetes."""
    return [document for document in yaml.load_all(render_text(values, version), Loader=yaml.CSafeLoader) if document]


def render_text(values: Values | None = None, version: str = NEWEST) -> str:
    """The same as text."""
    done = _template(json.dumps(values or {}, sort_keys=True), version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(values: Values) -> str:
    """What Helm says of values that it refuses."""
    done = _template(json.dumps(values, sort_keys=True), NEWEST)
    assert done.returncode != 0
    return done.stderr


def notes(values: Values | None = None) -> str:
    """What `helm install` prints for people, as of a cluster that knows no custom resources."""
    done = _run(["install", "--dry-run=client", RELEASE], json.dumps(values or {}))
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def one(documents: Sequence[Document], kind: str) -> Document:
    """The only object of a kind."""
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def pod(documents: Sequence[Document]) -> Document:
    """The spec of the DaemonSet's pods."""
    spec: Document = one(documents, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container(documents: Sequence[Document]) -> Document:
    """The container that samples."""
    (found,) = [entry for entry in pod(documents)["containers"] if entry["name"] == "ibpulse"]
    assert isinstance(found, dict)
    return found


def settings(documents: Sequence[Document]) -> Document:
    """The settings that the pods read."""
    texts = [document["data"]["ibpulse.yaml"] for document in documents if "ibpulse.yaml" in document.get("data", {})]
    (text,) = texts
    found: Document = yaml.safe_load(text)
    return found


def case_values(path: Path) -> Document:
    """The values of one case under ci/."""
    found: Document = yaml.safe_load(path.read_text())
    return found


def at_path(path: Sequence[str], value: object) -> Document:
    """Values with one value set, as `--set` would."""
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def merged(first: Values, second: Values) -> Document:
    """Both sets of values, the second on top."""
    both = dict(first)
    for key, value in second.items():
        known = both.get(key)
        both[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both


@functools.cache
def _template(values: str, version: str) -> subprocess.CompletedProcess[str]:
    return _run(["template", RELEASE, "--kube-version", version], values)


def _run(arguments: Sequence[str], values: str) -> subprocess.CompletedProcess[str]:
    command, *others = arguments
    return subprocess.run(
        ["helm", command, *others, str(CHART), "--namespace", NAMESPACE, "--values", "-"],
        input=values,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
