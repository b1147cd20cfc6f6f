"""The web configuration file as texts, with the line of each. It must not judge any value.

Scalars are taken as written, whatever YAML sees in them; what is left empty is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1_000_000
# the deepest thing that the format knows is a header, three keys down
MAX_DEPTH = 3
EMPTY = ("", "~", "null", "Null", "NULL")

Keys = tuple[str, ...]


@dataclass(slots=True)
class ConfigSource:
    """The texts of a file as nested mappings and lists, the line of each key, and what is wrong with the file."""

    path: Path
    texts: dict[str, Any] = field(default_factory=dict)
    lines: dict[Keys, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def place(self, keys: Keys) -> str:
        """File, line and key, for the front of a message; the line of the nearest key that is written."""
        near = keys
        while near and near not in self.lines:
            near = near[:-1]
        line = f":{self.lines[near]}" if near else ""
        return f"{self.path}{line}" + (f": {'.'.join(keys)}" if keys else "")


def read_source(path: Path) -> ConfigSource:
    """What the file says; a file that cannot be read or is not YAML is a fault."""
    source = ConfigSource(path)
    try:
        text = _read_text(path)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        source.faults.append(f"{path}: cannot be read: {error.strerror}; correct --web.config.file or leave it out")
    except UnicodeDecodeError as error:
        source.faults.append(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text")
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        source.faults.append(f"{path}{line}: not YAML: {error.problem}; correct this line or the one before")
    except yaml.YAMLError as error:
        source.faults.append(f"{path}: not YAML: {str(error).splitlines()[0]}; save the file as plain text")
    else:
        _fill(root, source)
    return source


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(0, f"it is longer than {MAX_BYTES} bytes")
    return content.decode()


def _fill(root: yaml.Node | None, source: ConfigSource) -> None:
    if root is None or _is_empty(root):
        return
    if isinstance(root, yaml.MappingNode):
        source.texts = dict(_entries(root, (), source))
    else:
        source.faults.append(f"{source.path}: is not a mapping; write it like tls_server_config: {{cert_file: a.crt}}")


def _entries(node: yaml.MappingNode, keys: Keys, source: ConfigSource) -> Iterator[tuple[str, Any]]:
    """Key and content of each entry of a mapping that holds something."""
    for key, value in node.value:
        below = (*keys, str(key.value))
        line = key.start_mark.line + 1
        if below in source.lines:
            first = source.lines[below]
            source.faults.append(
                f"{source.path}:{line}: {'.'.join(below)}: is given twice, first in line {first}; give it once"
            )
            continue
        source.lines[below] = line
        if not _is_empty(value):
            yield below[-1], _content(value, below, source)


def _content(node: yaml.Node, keys: Keys, source: ConfigSource) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if len(keys) >= MAX_DEPTH:
        source.faults.append(f"{source.place(keys)}: holds more than a value; give one text")
        return ""
    if isinstance(node, yaml.MappingNode):
        return dict(_entries(node, keys, source))
    return [_content(item, (*keys, str(number)), source) for number, item in enumerate(node.value)]


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in EMPTY
