"""Lists of nodes: what is taken, and the sentence for each thing that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import DiscoveryError
from ibpulse.base.yaml import YamlFile
from ibpulse.gateway.nodes import targets
from tests.tables import for_each

NOT_AN_ADDRESS = "is not an address; write it like node1:10055"
MORE = "has more than a host, a port and a plain path; write it like node1:10055"


@pytest.mark.parametrize(
    ("address", "name", "url"),
    [
        ("node1", "node1", "http://node1:10055"),
        ("node1:80", "node1", "http://node1:80"),
        ("Node1.Example.", "node1.example.", "http://node1.example.:10055"),
        ("10.0.0.7", "10.0.0.7", "http://10.0.0.7:10055"),
        ("[fd00::1]:1", "fd00::1", "http://[fd00::1]:1"),
        ("[::1]:1", "::1", "http://[::1]:1"),
        ("https://node1", "node1", "https://node1:10055"),
        ("http://node1/a/b-c.d/", "node1", "http://node1:10055/a/b-c.d"),
    ],
)
def test_addresses(address: str, name: str, url: str) -> None:
    found = targets.make_target(address, {})
    assert found == targets.Target(name, url, {}, named=name not in ("10.0.0.7", "fd00::1", "::1"))
    assert found.key == (name if found.named else url)


@for_each(
    [
        ("node 1", NOT_AN_ADDRESS),
        ("\x1b[31mnode", NOT_AN_ADDRESS),
        ("n" * 600, NOT_AN_ADDRESS),
        ("n" * 64, NOT_AN_ADDRESS),
        ("node:0", NOT_AN_ADDRESS),
        ("node:65536", NOT_AN_ADDRESS),
        ("[fe80::1%25eth0]:1", NOT_AN_ADDRESS),
        ("[::g]:1", NOT_AN_ADDRESS),
        ("-node", NOT_AN_ADDRESS),
        ("file:///etc/passwd", "'file' is not a scheme for nodes; use http or https"),
        ("http://ops:secret@node", "an address has a user name"),
        ("ops:secret@node", "an address has a user name"),
        ("http://node?x=1", MORE),
        ("http://node/#x", MORE),
        ("http://node/../x", MORE),
        ("http://node/a%2f", MORE),
        ("http://node//x", MORE),
        ("http:///x", NOT_AN_ADDRESS),
    ]
)
def test_other_addresses_are_refused(address: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        targets.make_target(address, {})
    assert reason in str(caught.value)
    assert str(caught.value).isprintable()
    # it may be a password
    assert "secret" not in str(caught.value)


def test_labels_name_the_node_and_choose_the_scheme() -> None:
    labels = {"node": "gpu-7", "rack": "r 1", "__scheme__": "https", "__meta_x": "y"}
    assert targets.make_target("10.0.0.7:1", labels) == targets.Target("gpu-7", "https://10.0.0.7:1", {"rack": "r 1"})
    assert targets.make_target("http://10.0.0.7:1", labels).url == "http://10.0.0.7:1"


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ({"node": ""}, "the name '' is not one for a node"),
        ({"node": "a/b"}, "the name 'a/b' is not one for a node"),
        ({"rack": "\x1b[31m"}, "the label rack is longer than 256 characters, or has control characters"),
        ({"rack": "x" * 257}, "the label rack is longer than 256 characters, or has control characters"),
        ({"ra ck": "x"}, "'ra ck' is not a name of a label"),
        ({"\u202e": "x"}, r"'\\u202e' is not a name of a label"),
        ({"__scheme__": "ftp"}, "'ftp' is not a scheme for nodes"),
        ({f"l{number}": "" for number in range(33)}, "has 33 labels; use at most 32"),
    ],
)
def test_other_labels_are_refused(labels: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        targets.make_target("node", labels)
    assert reason in str(caught.value)


def read(directory: Path, text: str, form: str) -> tuple[targets.Target, ...]:
    if form == "json":
        return targets.make_targets(targets.read_json(text.encode(), "list"))
    path = directory / "list"
    path.write_text(text)
    return targets.make_targets(targets.read_yaml(YamlFile(path)))


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_lists_in_the_format_of_prometheus(tmp_path: Path, form: str) -> None:
    text = json.dumps(
        [
            {"targets": ["node1:1", "node2"], "labels": {"leaf": "l1"}},
            {"targets": ["node3"]},
            {"targets": [], "labels": None},
        ]
    )
    assert read(tmp_path, text, form) == (
        targets.Target("node1", "http://node1:1", {"leaf": "l1"}),
        targets.Target("node2", "http://node2:10055", {"leaf": "l1"}),
        targets.Target("node3", "http://node3:10055", {}),
    )
    assert read(tmp_path, "[]", form) == ()


def test_yaml_scalars_stay_as_written(tmp_path: Path) -> None:
    (target,) = read(tmp_path, "- targets: [node1:1]\n  labels: {rack: 012, row: yes}\n", "yaml")
    assert target.labels == {"rack": "012", "row": "yes"}


def faults(directory: Path, text: str, form: str) -> list[str]:
    with pytest.raises(DiscoveryError) as caught:
        read(directory, text, form)
    return [fault.replace(f"{directory}/", "") for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("document", "json_fault", "yaml_fault"),
    [
        ({}, "list: is not a list", "list:1: is not a list"),
        ([5], "list: entry 1: is not an object", "list:1: entry: is not a mapping"),
        ([{"target": ["a"]}], "list: entry 1: is not an object", "list:1: 'target': no such key"),
        ([{"labels": {}}], "list: entry 1: is not an object", "list:1: targets is not a list of texts"),
        ([{"targets": "a"}], "list: entry 1: targets is not a list", "list:1: targets is not a list of texts"),
        ([{"targets": [["a"]]}], "list: entry 1: targets is not a list", "list:1: targets is not a list of texts"),
        (
            [{"targets": ["a"], "labels": {"x": {}}}],
            "list: entry 1: labels is not an object",
            "list:1: labels is not a mapping of texts",
        ),
        ([{"targets": ["a", "a"]}], "list: entry 1: a second node is called 'a'", "list:1: a second node is called"),
        ([{"targets": ["ftp://a"]}], "list: entry 1: 'ftp' is not a scheme", "list:1: 'ftp' is not a scheme"),
    ],
)
def test_faulty_lists_are_refused_with_the_place(
    tmp_path: Path, document: Any, json_fault: str, yaml_fault: str
) -> None:
    text = json.dumps(document)
    assert faults(tmp_path, text, "json")[0].startswith(json_fault)
    assert faults(tmp_path, text, "yaml")[0].startswith(yaml_fault)


def test_what_is_no_list_is_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, "[", "json")[0].startswith("list: not JSON: ")
    assert faults(tmp_path, "[", "yaml")[0].startswith("list:1: not YAML: ")
    with pytest.raises(DiscoveryError, match="not JSON"):
        targets.make_targets(targets.read_json(b"[" * 100_000, "list"))
    assert "labels is not an object of texts" in faults(tmp_path, '[{"targets": ["a"], "labels": {"x": 5}}]', "json")[0]
    recursive = "- &a {targets: [x], labels: *a}\n"
    assert "not a mapping of texts" in faults(tmp_path, recursive, "yaml")[0]


@pytest.mark.parametrize(("text", "reason"), [("# no nodes\n", "is empty; write []"), ("---\n", "is not a list")])
def test_empty_files_are_no_empty_lists(tmp_path: Path, text: str, reason: str) -> None:
    (fault,) = faults(tmp_path, text, "yaml")
    assert reason in fault


def test_numbers_of_nodes_and_faults_are_bounded() -> None:
    many = json.dumps([{"targets": [f"n{number}" for number in range(1_000_000)]}]).encode()
    with pytest.raises(DiscoveryError, match=f"more than {targets.MAX_TARGETS} nodes"):
        targets.make_targets(targets.read_json(many, "list"))
    with pytest.raises(DiscoveryError) as caught:
        targets.make_targets(targets.read_json(json.dumps([{"targets": ["a b"] * 10_000}]).encode(), "list"))
    assert len(caught.value.faults) == targets.MAX_FAULTS
