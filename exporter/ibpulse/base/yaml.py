"""Reads YAML and JSON files that people write: nodes with their lines, sections of known keys, and faults as sentences.

Scalars are taken as written, because YAML would read `0001:00:00.0` as a number of base 60.

The functions that need the module `yaml` import it themselves: it takes 1 MB, and a daemon without such files has no
use for it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

from ibpulse.base.errors import ConfigError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import escape_controls, split_lines
from ibpulse.base.values import EntriesError, Kind, advice

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000
# no file of ibpulse needs more than four
MAX_DEPTH = 20
# a file of MAX_BYTES without aliases has fewer
MAX_NODES = 500_000
# the deepest value in a section is a header, three keys down
MAX_KEYS = 3
EMPTY = ("", "~", "null", "Null", "NULL")
# YAML can escape these, but no file name, header or encoding has them
_NOWHERE = re.compile("[\x00\ud800-\udfff]")
# the text may be a key or a hash, which no log should show
_NOWHERE_FAULT = "an escape stands for a null character or half of a surrogate pair; remove it"

# of JSON, which is no subset of YAML: tabs, escaped surrogate pairs, and long keys are errors in YAML
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_LITERAL = re.compile(r"[^\s,\[\]{}]+")

Keys = tuple[str, ...]
T = TypeVar("T")


class YamlEntry(NamedTuple):
    """Key, line (from 1) and value of one entry of a mapping."""

    name: str
    line: int
    value: yaml.Node


def entry(kind: Kind[T] | type[T], default: Any = None, *, secret: bool = False) -> Any:
    """Declare a key of a section, which is a dataclass: the kind of its value, or the class of a section in it."""
    given = {"default_factory": dict} if default == {} else {"default": default}
    return field(**given, repr=not secret, metadata={"kind": kind})


@dataclass(slots=True)
class YamlFile:
    """A file while it is read: its path, the line of each key, and every fault found so far with the remedy."""

    path: Path
    faults: list[str] = field(default_factory=list)
    lines: dict[Keys, int] = field(default_factory=dict)

    def compose(self, access: str, *, regular: bool = False) -> yaml.Node | None:
        """The root of the file; None if it is empty or a fault was added. `access` is for an unreadable file.

        With `regular`, a pipe is a fault.
        """
        import yaml

        try:
            text = ForeignFile(self.path, ConfigError, access=access, regular=regular).read_text(MAX_BYTES)
            node = json_root(text, MAX_DEPTH)
            # composing is recursive, parsing is not
            fault = _find_fault(text) if node is None else _find_json_fault(node)
            if fault is None:
                return yaml.compose(text, Loader=yaml.SafeLoader) if node is None else node
            self.refuse(*fault)
        except ConfigError as error:
            self.faults += error.faults
        except yaml.MarkedYAMLError as error:
            self.refuse(
                error.problem_mark.line + 1 if error.problem_mark else 1,
                f"not YAML: {error.problem}; correct this line or the one before",
            )
        except yaml.YAMLError as error:
            self.faults.append(f"{self.path}: not YAML: {split_lines(str(error))[0]}; save the file as plain text")
        return None

    def entries(self, node: yaml.MappingNode, prefix: str = "") -> Iterator[YamlEntry]:
        """Each entry of a mapping; a key given twice is a fault, which names it behind `prefix`."""
        lines: dict[str, int] = {}
        for name_node, value in node.value:
            name, line = text_of(name_node), name_node.start_mark.line + 1
            if name in lines:
                shown = escape_controls(f"{prefix}{name}")
                self.refuse(line, f"{shown}: is given twice, first in line {lines[name]}; give it once")
            else:
                lines[name] = line
                yield YamlEntry(name, line, value)

    def mapping_entries(self, node: yaml.Node, what: str, example: str, prefix: str = "") -> Iterator[YamlEntry]:
        """Like `entries`, for a node called `what`; if the node is not a mapping, the fault shows the example."""
        if is_mapping(node):
            yield from self.entries(node, prefix)
        else:
            self.refuse(node.start_mark.line + 1, f"{what}: is not a mapping; write it like {example}")

    def refuse(self, line: int, sentence: str) -> None:
        """Add a fault with file and line in front."""
        self.faults.append(f"{self.path}:{line}: {sentence}")

    def place(self, keys: Keys) -> str:
        """File, line and key as the prefix of a message; the line is that of the nearest key present."""
        near = keys
        while near and near not in self.lines:
            near = near[:-1]
        line = f":{self.lines[near]}" if near else ""
        return f"{self.path}{line}" + (f": {'.'.join(keys)}" if keys else "")

    def read_texts(self, access: str, example: str) -> dict[str, Any]:
        """The texts of the file as nested mappings and lists, without empty values; `example` is a line of one."""
        root = self.compose(access)
        if is_mapping(root):
            return dict(self._texts(root, ()))
        if root is not None and not is_empty(root):
            self.faults.append(f"{self.path}: is not a mapping; write it like {example}")
        return {}

    def _texts(self, node: yaml.MappingNode, keys: Keys) -> Iterator[tuple[str, Any]]:
        for name, line, value in self.entries(node, "".join(f"{part}." for part in keys)):
            self.lines[(*keys, name)] = line
            if not is_empty(value):
                yield name, self._content(value, (*keys, name))

    def _content(self, node: yaml.Node, keys: Keys) -> Any:
        if is_scalar(node):
            return str(node.value)
        if len(keys) >= MAX_KEYS:
            self.faults.append(f"{self.place(keys)}: not a single value; give one text")
            return ""
        if is_mapping(node):
            return dict(self._texts(node, keys))
        return [self._content(item, (*keys, str(number))) for number, item in enumerate(node.value)]

    def read_section(self, section: type[T], texts: Mapping[str, Any], keys: Keys = ()) -> T:
        """The section of these texts; a value that is wrong is a fault and keeps its default.

        Paths are relative to the directory of the file.
        """
        kinds = {one.name: one.metadata["kind"] for one in dataclasses.fields(section)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for name, given in texts.items():
            try:
                if name not in kinds:
                    raise ValueError("no such key; " + advice(name, kinds, f"known keys: {', '.join(kinds)}"))
                values[name] = self._value(kinds[name], given, (*keys, name))
            except EntriesError as error:
                self.faults += (f"{self.place((*keys, name, entry))}: {fault}" for entry, fault in error.faults)
            except ValueError as error:
                self.faults.append(f"{self.place((*keys, name))}: {error}")
        return section(**values)

    def _value(self, kind: Any, given: Any, keys: Keys) -> Any:
        if not isinstance(kind, Kind):
            if not isinstance(given, dict):
                raise ValueError(f"is not a mapping; write it like {keys[-1]}: {{key: value}}")  # noqa: TRY004
            return self.read_section(kind, given, keys)
        if kind.mapping and not isinstance(given, dict):
            raise ValueError("is not a mapping of names to texts; write it like name: text")
        if kind.item and isinstance(given, dict):
            raise ValueError("is not a list; write it like [one, other]")
        if not kind.mapping and not kind.item and not isinstance(given, str):
            # which may be a secret
            raise ValueError("not a single value; give one text")
        value = kind.parse(given)
        return self.path.parent / value if isinstance(value, Path) else value


def is_scalar(node: yaml.Node | None) -> TypeGuard[yaml.ScalarNode]:
    """Whether a node is a single value."""
    return getattr(node, "id", "") == "scalar"


def is_sequence(node: yaml.Node | None) -> TypeGuard[yaml.SequenceNode]:
    """Whether a node is a list."""
    return getattr(node, "id", "") == "sequence"


def is_mapping(node: yaml.Node | None) -> TypeGuard[yaml.MappingNode]:
    """Whether a node is a mapping."""
    return getattr(node, "id", "") == "mapping"


def is_empty(node: yaml.Node) -> bool:
    """Whether a value is absent or null."""
    return is_scalar(node) and node.style is None and node.value in EMPTY


def text_of(node: yaml.Node) -> str:
    """A scalar as written; a list or a mapping, whose aliases may repeat themselves without end, as `[...]`."""
    return str(node.value) if is_scalar(node) else "[...]"


def texts_of(node: yaml.Node) -> str | tuple[str, ...] | None:
    """The text of a scalar or the texts of a plain list, as written; None if the node is nested more deeply."""
    if is_sequence(node) and all(map(is_scalar, node.value)):
        return tuple(str(item.value) for item in node.value)
    return str(node.value) if is_scalar(node) else None


def _find_fault(text: str) -> tuple[int, str] | None:
    """The line and the fault of the first node that is nested too deeply, or has characters that nothing can have.

    Aliases count as the nodes that they repeat, because readers visit these as often as they are repeated.
    """
    import yaml

    sizes: dict[str | None, int] = {}
    # nodes until now, and those in front of each open collection
    nodes, opened = 0, list[tuple[str | None, int]]()
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, nodes))
            nodes += 1
            if len(opened) > MAX_DEPTH:
                return line, f"more than {MAX_DEPTH} levels deep; correct the brackets or the indentation"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes |= {anchor: nodes - before} if anchor else {}
        elif isinstance(event, yaml.AliasEvent):
            nodes += sizes.get(event.anchor or "", 1)
            if nodes > MAX_NODES:
                return line, f"with its aliases, more than {MAX_NODES} values; write fewer aliases"
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if _NOWHERE.search(event.value):
                return line, _NOWHERE_FAULT
    return None


def _find_json_fault(node: yaml.Node) -> tuple[int, str] | None:
    """The line and the fault of the first text with characters that nothing can have."""
    if is_scalar(node):
        return (node.start_mark.line + 1, _NOWHERE_FAULT) if _NOWHERE.search(node.value) else None
    parts = [part for pair in node.value for part in pair] if is_mapping(node) else node.value
    return next(filter(None, map(_find_json_fault, parts)), None)


def json_root(text: str, max_depth: int) -> yaml.Node | None:
    """The root of a JSON object or list; None if the text is something else, or deeper than `max_depth`."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    reader = _Reader(text, max_depth)
    node = reader.read(0)
    return None if reader.too_deep else node


class _Reader:
    """Reads values of a text that is known to be JSON; `at` is behind the last one."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.max_depth = text, max_depth
        self.ends = [found.start() for found in re.finditer("\n", text)]
        self.at = 0
        self.too_deep = False

    def read(self, depth: int) -> yaml.Node:
        """The next value."""
        import yaml

        sign = self._peek()
        line = bisect_left(self.ends, self.at)
        mark = yaml.Mark("", self.at, line, 0, None, 0)
        if sign == '"':
            value, self.at = _DECODER.raw_decode(self.text, self.at)
            return yaml.ScalarNode("", value, mark, mark, style='"')
        if sign not in "{[":
            found = _LITERAL.match(self.text, self.at)
            self.at = found.end() if found else self.at + 1
            return yaml.ScalarNode("", found[0] if found else "", mark, mark)
        self.too_deep |= depth >= self.max_depth
        items = list(self._items(depth))
        if sign == "{":
            return yaml.MappingNode("", items, mark, mark)
        return yaml.SequenceNode("", items, mark, mark)

    def _items(self, depth: int) -> Iterator[Any]:
        """The values of a list, or pairs of keys and values of an object."""
        pairs = self.text[self.at] == "{"
        self.at += 1
        while not self.too_deep and self._peek() not in "}]":
            item = self.read(depth + 1)
            if pairs:
                self._peek()
                self.at += 1
                yield item, self.read(depth + 1)
            else:
                yield item
            if self._peek() == ",":
                self.at += 1
        self.at += 1

    def _peek(self) -> str:
        """The next character that is not space."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]
