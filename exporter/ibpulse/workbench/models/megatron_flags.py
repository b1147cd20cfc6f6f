"""Reads `MODEL_ARGS` of Megatron-LM's job files: a mapping of flags, a list of flags, or the text of a command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ibpulse.base.yaml import YamlEntry, YamlFile, is_mapping, is_scalar, is_sequence

if TYPE_CHECKING:
    import yaml

MODEL_ARGS = "MODEL_ARGS"


def flag_entries(file: YamlFile, node: yaml.Node) -> dict[str, YamlEntry]:
    """The flags by their name in `snake_case`; the last of several counts, as for argparse."""
    return {entry.name.lstrip("-").replace("-", "_"): entry for entry in _entries(file, node)}


def _entries(file: YamlFile, node: yaml.Node) -> Iterator[YamlEntry]:
    if is_mapping(node):
        yield from file.entries(node)
        return
    items = node.value if is_sequence(node) else [node]
    words: list[tuple[str, yaml.Node]] = []
    for item in items:
        if is_mapping(item):
            yield from file.entries(item)
        elif is_scalar(item):
            words += [(word, item) for word in item.value.replace("\\\n", " ").split()]
    yield from _parsed(words)


def _parsed(words: list[tuple[str, yaml.Node]]) -> Iterator[YamlEntry]:
    """The flags of a command line: `--flag`, `--flag=value`, or `--flag value ...`."""
    import yaml

    at = 0
    while at < len(words):
        word, node = words[at]
        at += 1
        if not word.startswith("--"):
            continue
        name, _, value = word.partition("=")
        values = [value] if value else []
        while at < len(words) and not words[at][0].startswith("--"):
            values.append(words[at][0].strip("\"'"))
            at += 1
        text = " ".join(values) or "true"
        yield YamlEntry(name, node.start_mark.line + 1, yaml.ScalarNode("", text, node.start_mark, node.end_mark))
