"""Reads the description of a job from a file: our own YAML, a Hugging Face config.json, or a run_config.yaml.

JSON is YAML, so one reader finds the line of every key. Files may come from anywhere: size and depth are limited by
`YamlFile`, numbers by their parsers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import yaml

from ibpulse.errors import ConfigError
from ibpulse.models.architecture import Architecture
from ibpulse.models.input_keys import KEYS
from ibpulse.models.model_configs import read_hub_config, read_run_config
from ibpulse.text import escape_controls
from ibpulse.yaml_file import YamlFile

EXAMPLE = "{model: mixtral-8x7b, nodes: 2, step: 1444ms}"
_EMPTY = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class GivenText:
    """The text of an input, and where it came from: `flag --tp` or `job.yaml:3: tp`."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class JobFile:
    """What a file says: a model, if it describes the layers of one, and the texts of inputs by name."""

    texts: Mapping[str, GivenText] = field(default_factory=dict)
    model: Architecture | None = None


def read_job_file(path: Path) -> JobFile:
    """The inputs in a file of any of the three kinds.

    Raises:
        ConfigError: it cannot be read, is not YAML, or has keys or values that cannot be used; lists all faults.
    """
    file = YamlFile(path)
    root = file.compose("check the path and its permissions")
    if root is not None and not isinstance(root, yaml.MappingNode):
        file.faults.append(f"{path}: is not a mapping; write it like {EXAMPLE}")
    if file.faults or not isinstance(root, yaml.MappingNode):
        raise ConfigError(file.faults or [f"{path}: is empty; write it like {EXAMPLE}"])
    entries = {entry.name: entry for entry in file.entries(root, lambda name: f"{escape_controls(name)}:")}
    if "model" in entries and isinstance(entries["model"].value, yaml.MappingNode):
        found = read_run_config(file, root)
        texts = {name: GivenText(text, f"{path}:{place}") for name, (text, place) in found.texts.items()}
        result = JobFile(texts, found.model)
    elif "model_type" in entries or "num_hidden_layers" in entries:
        result = JobFile({}, read_hub_config(file, root))
    else:
        result = JobFile(
            {
                name: _given(file, name, entry.line, entry.value)
                for name, entry in entries.items()
                if not _is_empty(entry.value)
            }
        )
    if file.faults:
        raise ConfigError(file.faults)
    return result


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _EMPTY


def _given(file: YamlFile, name: str, line: int, node: yaml.Node) -> GivenText:
    shown = escape_controls(name)
    place = f"{file.path}:{line}: {shown}"
    if name not in KEYS:
        nearest = get_close_matches(name, KEYS, n=1)
        way_out = f"did you mean {nearest[0]}?" if nearest else "docs/models.md lists all keys"
        file.refuse(line, f"{shown}: no such key; {way_out}")
    elif isinstance(node, yaml.ScalarNode):
        return GivenText(str(node.value), place)
    elif isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        return GivenText(",".join(str(item.value) for item in node.value), place)
    else:
        file.refuse(line, f"{shown}: not a single value; write it like {shown}: 8")
    return GivenText("", place)
