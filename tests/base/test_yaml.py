"""JSON gives the nodes that YAML would give, and what YAML cannot read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

from ibpulse.base.yaml import YamlFile, json_root
from tests.tables import for_each


def seen(node: yaml.Node | None) -> Any:
    """Kind, line and content of a node, without its place in the line."""
    line = node.start_mark.line
    if isinstance(node, yaml.ScalarNode):
        return line, node.value, node.style
    parts = [seen(part) for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
    return line, node.id, parts


def some(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(4 if depth > 4 else 6)
    if kind < 4:
        return chance.choice([None, True, 12, -1.5e-7, "", "null", 'a "b" \\ c', "tab\tand\nline", "[1, {}]", "\u00e9"])
    size = chance.randrange(4)
    if kind == 4:
        return [some(chance, depth + 1) for _ in range(size)]
    return {f"key {number}": some(chance, depth + 1) for number in range(size)}


def test_nodes_of_json_are_those_of_yaml() -> None:
    chance = random.Random(1)
    for _ in range(200):
        text = json.dumps({"": some(chance)}, indent=chance.choice([None, 1, 4]))
        assert seen(json_root(text, 20)) == seen(yaml.compose(text, Loader=yaml.SafeLoader)), text


@for_each({
    "tabs": '{\n\t"a":\t1}',
    "a pair of surrogates": '{"a": 1, "b": "\\ud83d\\ude00"}',
    "a long key": json.dumps({"a": 1, "x" * 2000: 1}),
    "no space": '{"a":1,"b":[{"c":2}]}',
    "not a number": '{"a": 1, "b": NaN}',
    "a control character": '{"a": 1, "b": "\x7f"}',
})  # fmt: skip
def test_files_that_are_json_but_not_yaml_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    file = YamlFile(path)
    assert file.read_texts("check it", "a: 1")["a"] == "1"
    assert not file.faults


@for_each({
    "half a pair": ('{\n"a": "\\ud83d"}', "file.json:2: an escape stands for a null character or half of a"),
    "a null character": ('{"a": 1,\n\n"\\u0000": 2}', "file.json:3: an escape stands for a null character"),
    "too deep": ("[" * 30 + "]" * 30, "file.json:1: more than 20 levels deep"),
    "given twice": ('{"a": 1,\n"a": 2}', "file.json:2: a: is given twice, first in line 1"),
})  # fmt: skip
def test_faults_of_json_have_their_line(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    file = YamlFile(path)
    file.read_texts("check it", "a: 1")
    assert file.faults[0].startswith(f"{tmp_path}/{sentence}")
