"""The schemas that rendered objects must keep: Kubernetes' own, and those of the Prometheus operator. No assertions.

Kubernetes' come with the package kubernetes-validate. The operator's are read from its Go module, which `.ci/run` loads
into the module cache; unknown fields are errors in both.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from referencing import Registry, Resource

OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.93.1"
GROUP = "monitoring.coreos.com"
_SCHEMAS = files("kubernetes_validate") / "kubernetes-json-schema"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


_FULL = {
    name[1:].rpartition(".")[0]: name[1:]
    for name in sorted(
        (entry.name.removesuffix("-local-strict") for entry in _SCHEMAS.iterdir() if entry.name.endswith("-strict")),
        key=lambda name: _numbers(name[1:]),
    )
}
VERSIONS = list(_FULL)
"""The versions of Kubernetes with schemas, oldest first."""


def faults(document: dict[str, Any], version: str) -> list[str]:
    """What is wrong with an object of Kubernetes' own in one of its versions, each with its place."""
    group, _, name = document["apiVersion"].rpartition("/")
    kind = "-".join(filter(None, (document["kind"].lower(), group.partition(".")[0], name)))
    return _sentences(_validator(kind, version), document)


def custom_faults(document: dict[str, Any]) -> list[str]:
    """What is wrong with an object of the Prometheus operator."""
    return _sentences(_custom_validator(document["kind"]), document)


def operator_directory() -> Path | None:
    """Where the operator's Go module is, if it was loaded."""
    if shutil.which("go") is None:
        return None
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    found = Path(cache) / OPERATOR / "example" / "prometheus-operator-crd"
    return found if found.is_dir() else None


def _sentences(validator: jsonschema.Draft202012Validator, document: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@functools.cache
def _validator(kind: str, version: str) -> jsonschema.Draft202012Validator:
    directory = _SCHEMAS / f"v{_FULL[version]}-local-strict"
    schema = json.loads((directory / f"{kind}.json").read_text())
    return jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _definitions(version))


@functools.cache
def _definitions(version: str) -> Registry[Any]:
    text = (_SCHEMAS / f"v{_FULL[version]}-local-strict" / "_definitions.json").read_text()
    registry: Registry[Any] = Resource.from_contents(json.loads(text)) @ Registry()
    return registry


class _Loader(yaml.CSafeLoader):
    """Reads `=`, which YAML 1.1 gives a meaning that nobody uses, as text."""


_Loader.add_constructor("tag:yaml.org,2002:value", _Loader.construct_scalar)


@functools.cache
def _custom_validator(kind: str) -> jsonschema.Draft202012Validator:
    directory = operator_directory()
    assert directory, f"run `go mod download {OPERATOR}`"
    definition = yaml.load((directory / f"{GROUP}_{kind.lower()}s.yaml").read_text(), Loader=_Loader)
    (version,) = definition["spec"]["versions"]
    return jsonschema.Draft202012Validator(_closed(version["schema"]["openAPIV3Schema"]))


def _closed(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server drops them; metadata is checked elsewhere."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed
