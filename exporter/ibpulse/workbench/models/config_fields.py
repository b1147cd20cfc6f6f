"""Reads the entries of a mapping in a configuration file of another program, each with its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ibpulse.base.text import escape_controls
from ibpulse.base.values import YAML_TRUTH, whole
from ibpulse.base.yaml import YamlEntry, YamlFile, is_mapping, is_scalar, is_sequence, text_of
from ibpulse.workbench.models.architecture import Architecture, LayerShape

if TYPE_CHECKING:
    import yaml

OTHERWISE = "give parameters, layers and hidden in a file of ibpulse instead"
MOST_LAYERS = 10_000
FLAGS = "--"
"""Prefix of keys that are flags of a command."""
_NOTHING = ("null", "~", "", "None")
_NEUTRAL = ("0", "false", "False")


class ConfigFields:
    """The entries of a mapping; faults go to the file."""

    def __init__(self, file: YamlFile, node: yaml.Node | None, prefix: str = "") -> None:
        self.file, self.prefix = file, prefix
        self.line = node.start_mark.line + 1 if node else 1
        entries = file.entries(node, prefix) if is_mapping(node) else ()
        self.entries = {entry.name: entry for entry in entries}

    def name(self, key: str) -> str:
        """A key with its section."""
        return escape_controls(self.prefix + (key.replace("_", "-") if self.prefix == FLAGS else key))

    def place(self, key: str) -> str:
        """Line and name of a key; the line of its section if it is missing."""
        line = self.entries[key].line if key in self.entries else self.line
        return f"{line}: {self.name(key)}"

    def section(self, key: str) -> ConfigFields:
        """The entries of a mapping in this one; none if it is missing."""
        entry = self.entries.get(key)
        return ConfigFields(self.file, entry.value if entry else None, f"{self.name(key)}.")

    def rename(self, names: dict[str, str]) -> None:
        """Give entries other names, where nothing has them."""
        for old, new in names.items():
            if old in self.entries and new not in self.entries:
                entry = self.entries.pop(old)
                self.entries[new] = YamlEntry(new, entry.line, entry.value)

    def node(self, key: str) -> yaml.Node | None:
        """The value of a key; None if it is missing or null."""
        entry = self.entries.get(key)
        null = entry and is_scalar(entry.value) and entry.value.value in _NOTHING
        return None if entry is None or null else entry.value

    def text(self, key: str, default: str = "") -> str:
        """A text; its default if it is missing or null, or is not a single value."""
        node = self.node(key)
        if node is not None and not is_scalar(node):
            self.refuse(key, "not a single value; give one")
        return str(node.value) if is_scalar(node) else default

    def whole(self, key: str, default: int | None = None, high: int = 10_000_000, low: int = 1) -> int:
        """A whole number of at least `low`; without a default it is required, and the result 1 if it is missing.

        A list of one number for each layer is that number, if all are the same.
        """
        node = self.node(key)
        if (
            is_sequence(node)
            and len(node.value) > 1
            and len({getattr(item, "value", None) for item in node.value}) == 1
        ):
            node = node.value[0]
        text = str(node.value) if is_scalar(node) else self.text(key)
        if text:
            try:
                return whole(low, high).parse(text)
            except ValueError as error:
                self.refuse(key, str(error))
        elif default is None and node is None:
            self.refuse(key, f"is missing; {OTHERWISE}")
        return 1 if default is None else default

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether a key is true."""
        text = self.text(key)
        if not text:
            return default
        try:
            return YAML_TRUTH.parse(text)
        except ValueError as error:
            self.refuse(key, str(error))
            return default

    def one_of(self, keys: Sequence[str]) -> str:
        """The key that is given, of several with the same meaning; the first if none is, a fault if two disagree."""
        given = [key for key in keys if self.node(key) is not None]
        if len({frozenset(self.texts(key)) for key in given}) > 1:
            self.refuse(given[1], f"is not what {given[0]} is; correct one")
        return given[0] if given else keys[0]

    def has(self, key: str) -> bool:
        """Whether a key has a value other than null, 0, false and an empty list."""
        node = self.node(key)
        return node is not None and bool(node.value) and node.value not in _NEUTRAL

    def texts(self, key: str) -> list[str]:
        """The texts of a list or of a single value; none if it is missing."""
        node = self.node(key)
        items = node.value if is_sequence(node) else [] if node is None else [node]
        return [text_of(item) for item in items]

    def indices(self, key: str) -> frozenset[int]:
        """The numbers of layers in a list; none if it is missing."""
        try:
            return frozenset(map(whole(0, MOST_LAYERS).parse, self.texts(key)))
        except ValueError as error:
            self.refuse(key, str(error))
            return frozenset()

    def refuse(self, key: str, sentence: str) -> None:
        """Add a fault about a key."""
        self.file.faults.append(f"{self.file.path}:{self.place(key)}: {sentence}")

    def count(self, shape: LayerShape, name: str) -> Architecture | None:
        """The model of these layers; None if the file has a fault."""
        # what is missing has the value 1, and would seem to contradict the rest
        if not self.file.faults and shape.chosen_experts > shape.experts:
            self.file.faults.append(
                f"{self.file.path}: {shape.chosen_experts} experts per token are more than its {shape.experts} experts"
            )
        return None if self.file.faults else shape.count(name, str(self.file.path))
