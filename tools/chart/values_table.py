"""The documented values of a Helm chart: the comments of its `values.yaml` as rows.

A comment that begins with `# --` documents the key below it, and with it all that is under that key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from ibpulse.errors import ConfigError

_MARK = "# --"


@dataclass(frozen=True, slots=True)
class Value:
    """One documented value: its keys from the outermost on, its default, and the sentences about it."""

    path: tuple[str, ...]
    default: Any
    text: str

    @property
    def name(self) -> str:
        """The name as it is given to `--set`."""
        return ".".join(self.path)


def read_values(text: str) -> tuple[Value, ...]:
    """Every documented value in the order of the file.

    Raises:
        ConfigError: keys that neither have a comment nor lie under one that has.
    """
    lines = text.splitlines()
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    defaults = yaml.safe_load(text)
    found, bare = [], []
    for path, line, is_branch in _keys(root, (), lines):
        comment = _comment_above(lines, line)
        if comment:
            found.append(Value(path, _at(defaults, path), comment))
        elif not is_branch:
            bare.append(
                f"values.yaml:{line + 1}: {'.'.join(path)}: has no comment; write one above it, like `# -- ...`"
            )
    if bare:
        raise ConfigError(bare)
    return tuple(found)


def values_table(values: tuple[Value, ...]) -> str:
    """The values as a Markdown table."""
    rows = [f"| `{value.name}` | {_cell(value.default)} | {_escape(value.text)} |" for value in values]
    return "\n".join(["| value | default | description |", "|---|---|---|", *rows]) + "\n"


def _keys(
    node: yaml.Node | None, above: tuple[str, ...], lines: list[str]
) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    """Path, line and whether the keys under it are looked at, of every key down to those that have a comment."""
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        path, line = (*above, str(key.value)), key.start_mark.line
        is_branch = isinstance(value, yaml.MappingNode) and bool(value.value) and not _comment_above(lines, line)
        yield path, line, is_branch
        if is_branch:
            yield from _keys(value, path, lines)


def _comment_above(lines: list[str], line: int) -> str:
    """The sentences of the comment that ends right above a line, or nothing if it documents no value."""
    block: list[str] = []
    while line and (stripped := lines[line - 1].strip()).startswith("#"):
        line -= 1
        block.insert(0, stripped.removeprefix(_MARK).lstrip("#").strip())
        if stripped.startswith(_MARK):
            return " ".join(block)
    return ""


def _at(defaults: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        defaults = defaults[key]
    return defaults


def _cell(default: Any) -> str:
    return f"`{_escape(json.dumps(default, ensure_ascii=False))}`"


def _escape(text: str) -> str:
    return re.sub(r"\|", r"\\|", text)
