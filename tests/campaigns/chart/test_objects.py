"""Every object that the chart can render is valid, for each version of Kubernetes, and lint has nothing to say."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.campaigns.chart.rendering import CASES, CHART, NEWEST, Document, case_values, needs_helm, render
from tests.campaigns.chart.schemas import GROUP, VERSIONS, custom_faults, faults
from tests.campaigns.chart.switches import turns

pytestmark = needs_helm

# their schemas are in no package here
WITHOUT_SCHEMA = ("security.openshift.io/v1", "grafana.integreatly.org/v1beta1")
LAST_BEFORE_RECURSIVE = "1.30"
"""The chart asks newer versions for recursive read-only mounts: the only thing that depends on the version."""


@pytest.fixture(scope="module")
def rendered() -> dict[str, dict[str, list[Document]]]:
    """All objects by case and by the version they are for: the files of ci/, and every switch turned alone.

    Old versions are asked for the files of ci/ only, because a rendering takes a quarter of a second of CPU.
    """
    files = {path.name: case_values(path) for path in CASES}
    switches = {turn.name: turn.after for turn in turns()}
    with ThreadPoolExecutor(2) as pool:
        made = {name: {NEWEST: pool.submit(render, values, NEWEST)} for name, values in (files | switches).items()}
        for name, values in files.items():
            made[name][LAST_BEFORE_RECURSIVE] = pool.submit(render, values, LAST_BEFORE_RECURSIVE)
        return {name: {version: each.result() for version, each in case.items()} for name, case in made.items()}


def _distinct(documents: list[Document]) -> list[Document]:
    return list({json.dumps(document, sort_keys=True): document for document in documents}.values())


def _with_name(faulty: list[str], document: Document) -> list[str]:
    return [f"{document['kind']} {document['metadata']['name']}: {fault}" for fault in faulty]


def test_the_newest_version_that_is_checked_is_the_newest_with_a_schema() -> None:
    assert VERSIONS[0] == "1.25"
    assert VERSIONS[-1] == NEWEST


def test_each_object_of_each_case_is_valid_in_every_version(rendered: dict[str, dict[str, list[Document]]]) -> None:
    wrong = []
    for rendered_for, start, end in (
        (LAST_BEFORE_RECURSIVE, "1.25", LAST_BEFORE_RECURSIVE),
        (NEWEST, "1.31", NEWEST),
    ):
        versions = VERSIONS[VERSIONS.index(start) : VERSIONS.index(end) + 1]
        every = _distinct([document for case in rendered.values() for document in case.get(rendered_for, [])])
        own = [doc for doc in every if GROUP not in doc["apiVersion"] and doc["apiVersion"] not in WITHOUT_SCHEMA]
        assert len(own) > (30 if rendered_for == NEWEST else 20)
        wrong += [
            f"{version}: {fault}"
            for document in own
            for version in versions
            for fault in _with_name(faults(document, version), document)
        ]
    assert wrong == []


@pytest.mark.needs("Prometheus operator")
def test_monitors_and_rules_are_what_the_operator_defines(rendered: dict[str, dict[str, list[Document]]]) -> None:
    every = _distinct([document for case in rendered.values() for document in case[NEWEST]])
    custom = [document for document in every if GROUP in document["apiVersion"]]
    kinds = {"PodMonitor", "ServiceMonitor", "PrometheusRule", "AlertmanagerConfig"}
    assert {document["kind"] for document in custom} == kinds
    assert [fault for document in custom for fault in _with_name(custom_faults(document), document)] == []


@pytest.mark.needs("Prometheus operator")
def test_the_schemas_find_a_misspelt_field() -> None:
    monitor: dict[str, Any] = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "PodMonitor",
        "metadata": {"name": "x"},
        "spec": {"selector": {}, "podMetricsEndpoints": [{"intervall": "5s"}]},
    }
    (fault,) = custom_faults(monitor)
    assert "intervall" in fault
    (fault,) = faults({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "dota": {}}, NEWEST)
    assert "dota" in fault


def test_every_switch_changes_something(rendered: dict[str, dict[str, list[Document]]]) -> None:
    same = [turn.name for turn in turns() if rendered[turn.name][NEWEST] == render(turn.before)]
    # no board was written yet, or there are ConfigMaps for them
    boards = list((CHART / "files" / "dashboards").glob("*.json"))
    assert same == ([] if boards else ["dashboards.enabled=true"])


def test_no_two_objects_of_a_release_have_the_same_name(rendered: dict[str, dict[str, list[Document]]]) -> None:
    for name, case in rendered.items():
        names = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in case[NEWEST]]
        assert len(set(names)) == len(names), name


def test_lint_has_nothing_to_say_of_any_case() -> None:
    for path in CASES:
        done = subprocess.run(
            ["helm", "lint", "--strict", str(CHART), "--values", str(path)], check=False, capture_output=True, text=True
        )
        said = [line for line in done.stdout.splitlines() if line.startswith(("[ERROR]", "[WARNING]"))]
        assert (done.returncode, said) == (0, []), path.name
