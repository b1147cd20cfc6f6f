"""The values of the Helm chart: their descriptions in the comments of `values.yaml`, and a JSON schema of the settings.

A comment that begins with `# --` documents the key below it and everything under that key. The schema of the
settings checks the form of values, not their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ibpulse.agent.config.settings import GROUPS, ROWS, Setting
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import DECIMAL_UNITS, DURATION_UNITS, SIZE_UNITS

_MARK = "# --"
_NUMBER = r"[0-9]+(\.[0-9]+)?"
_DIGITS = "[0-9]+"
_TEXTS = ("PATH", "PORT", "ADDRESS", "RULE", "NAME", "SOURCE")
"""Metavars of values that may be any text."""


def read_values(text: str) -> dict[tuple[str, ...], str]:
    """The description of every documented value by its keys from the outermost, in the order of the file.

    Raises:
        ConfigError: a key has no comment and is not under a key with one.
    """
    lines, found, bare = text.splitlines(), {}, []
    for path, line, is_branch in _keys(yaml.compose(text, Loader=yaml.SafeLoader), (), lines):
        comment = _comment_above(lines, line)
        if comment:
            found[path] = comment
        elif not is_branch:
            bare.append(f"values.yaml:{line + 1}: {'.'.join(path)} has no comment; write one above it, like `# -- ...`")
    if bare:
        raise ConfigError(bare)
    return found


def _keys(
    node: yaml.Node | None, above: tuple[str, ...], lines: list[str]
) -> Iterator[tuple[tuple[str, ...], int, bool]]:
    """Path, line, and whether the keys below are visited too, of every key down to those with a comment."""
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        path, line = (*above, str(key.value)), key.start_mark.line
        is_branch = isinstance(value, yaml.MappingNode) and bool(value.value) and not _comment_above(lines, line)
        yield path, line, is_branch
        if is_branch:
            yield from _keys(value, path, lines)


def _comment_above(lines: list[str], line: int) -> str:
    """The text of the comment that ends right above a line, empty if it documents no value."""
    block: list[str] = []
    while line and (stripped := lines[line - 1].strip()).startswith("#"):
        line -= 1
        block.insert(0, stripped.removeprefix(_MARK).lstrip("#").strip())
        if stripped.startswith(_MARK):
            return " ".join(block)
    return ""


def settings_schema() -> dict[str, Any]:
    """The schema of the settings file; it rejects unknown names."""
    return _closed({group: _closed(_of_group(group)) | {"description": sentence} for group, sentence in GROUPS.items()})


def value_schema(row: Setting) -> dict[str, Any]:
    """The schema of one setting's value in YAML; numbers and lists may be plain or text."""
    if not row.kind.is_list:
        return _single(row.kind.metavar)
    item = _single(row.kind.metavar.removesuffix(",..."))
    if row.kind.mapping:
        lists = {"type": ["array", "string", "number"], "items": {"type": "string"}}
        return {"type": ["object", "array", "string"], "additionalProperties": lists, "items": {"type": "string"}}
    # a single text may hold the whole list, comma separated
    return {"type": ["array", "string", "number"], "items": item}


def _of_group(group: str) -> dict[str, Any]:
    return {
        row.name.removeprefix(f"{group}."): value_schema(row) | {"description": row.sentence}
        for row in ROWS
        if row.group == group
    }


def _single(metavar: str) -> dict[str, Any]:
    if metavar in _FORMS:
        return _FORMS[metavar]
    if metavar == "true|false":
        return {"type": "boolean"}
    if metavar.endswith("|PATH"):
        words = metavar.removesuffix("|PATH").split("|")
        return _form(f"{', '.join(words)} or an absolute path", f"({'|'.join(words)}|/.+)")
    if "|" in metavar:
        return {"type": "string", "enum": metavar.split("|")}
    return {"type": "string"} if metavar in _TEXTS else {"type": ["string", "number"]}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _with_unit(units: dict[str, int], end: str = "") -> str:
    return f"{_NUMBER}({'|'.join(units)}){end}"


def _form(sentence: str, pattern: str, plain: dict[str, Any] | None = None) -> dict[str, Any]:
    """The schema of a text, or of a `plain` number; errors show the sentence."""
    text = {"type": "string", "pattern": f"^{pattern}$"}
    # validators report the expected constant, here a sentence; for a pattern they would print the regex
    return {"if": {"anyOf": [text, plain]} if plain else text, "else": {"const": sentence}}


_FORMS = {
    "DURATION": _form("a duration with its unit, like 10ms, 5m or 1h30m", f"({_with_unit(DURATION_UNITS)})+"),
    "RATE": _form("a rate in bytes, like 0.1GB/s or 50MB/s", f"({_with_unit(DECIMAL_UNITS, '/s')})?"),
    "SIZE": _form("a size with its unit, like 64MiB or 10GB", _with_unit(SIZE_UNITS)),
    "RATIO": _form(
        "a ratio from 0 to 1, like 0.85", r"(0?\.[0-9]+|[01]|1\.0+)", {"type": "number", "minimum": 0, "maximum": 1}
    ),
    "COUNT": _form("a whole number, like 2", _DIGITS, {"type": "integer", "minimum": 0}),
    "CPU": _form("a CPU number, like 2", _DIGITS, {"type": "integer", "minimum": 0}),
}
"""Schemas by the metavar of the setting."""
