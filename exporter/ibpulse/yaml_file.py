"""Reads YAML files that people write: nodes with their lines, and faults as sentences.

Scalars are taken as written, because YAML would read `0001:00:00.0` as a number of base 60.

The functions that need the module `yaml` import it themselves: it takes 1 MB, and a daemon without such files has no
use for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from ibpulse.base.files import ForeignFile
from ibpulse.errors import ConfigError

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 1_000_000
# no file of ibpulse needs more than four
MAX_DEPTH = 20
# YAML can escape these, but no file name, header or encoding has them
_NOWHERE = re.compile("[\x00\ud800-\udfff]")


class YamlEntry(NamedTuple):
    """Key, line (from 1) and value of one entry of a mapping."""

    name: str
    line: int
    value: yaml.Node


@dataclass(slots=True)
class YamlFile:
    """A file while it is read: its path, and every fault found so far, with its line and the remedy."""

    path: Path
    faults: list[str] = field(default_factory=list)

    def compose(self, advice: str, *, regular: bool = False) -> yaml.Node | None:
        """The root of the file; None if it is empty or a fault was added. `advice` is for an unreadable file.

        With `regular`, a pipe is a fault.
        """
        import yaml

        try:
            text = ForeignFile(self.path, ConfigError, access=advice, regular=regular).read_text(MAX_BYTES)
            # composing is recursive, parsing is not
            fault = _find_fault(text)
            if fault is None:
                return yaml.compose(text, Loader=yaml.SafeLoader)
            self.refuse(*fault)
        except ConfigError as error:
            self.faults += error.faults
        except yaml.YAMLError as error:
            self.faults.append(self._syntax_fault(error))
        return None

    def entries(self, node: yaml.MappingNode, subject: Callable[[str], str]) -> Iterator[YamlEntry]:
        """Each entry of a mapping; a key given twice is a fault, whose sentence begins with `subject(key)`."""
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = text_of(key), key.start_mark.line + 1
            if name in lines:
                self.refuse(line, f"{subject(name)} is given twice, first in line {lines[name]}; give it once")
            else:
                lines[name] = line
                yield YamlEntry(name, line, value)

    def mapping_entries(
        self, node: yaml.Node, what: str, example: str, subject: Callable[[str], str]
    ) -> Iterator[YamlEntry]:
        """Like `entries`, for a node called `what`; if the node is not a mapping, the fault shows the example."""
        if is_mapping(node):
            yield from self.entries(node, subject)
        else:
            self.refuse(node.start_mark.line + 1, f"{what}: is not a mapping; write it like {example}")

    def refuse(self, line: int, sentence: str) -> None:
        """Add a fault with file and line in front."""
        self.faults.append(f"{self.path}:{line}: {sentence}")

    def _syntax_fault(self, error: yaml.YAMLError) -> str:
        import yaml

        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
            line = error.problem_mark.line + 1
            return f"{self.path}:{line}: not YAML: {error.problem}; correct this line or the one before"
        return f"{self.path}: not YAML: {str(error).splitlines()[0]}; save the file as plain text"


def is_scalar(node: yaml.Node | None) -> TypeGuard[yaml.ScalarNode]:
    """Whether a node is a single value."""
    import yaml

    return isinstance(node, yaml.ScalarNode)


def is_sequence(node: yaml.Node | None) -> TypeGuard[yaml.SequenceNode]:
    """Whether a node is a list."""
    import yaml

    return isinstance(node, yaml.SequenceNode)


def is_mapping(node: yaml.Node | None) -> TypeGuard[yaml.MappingNode]:
    """Whether a node is a mapping."""
    import yaml

    return isinstance(node, yaml.MappingNode)


def text_of(node: yaml.Node) -> str:
    """A scalar as written; a list or a mapping, whose aliases may repeat themselves without end, as `[...]`."""
    return str(node.value) if is_scalar(node) else "[...]"


def _find_fault(text: str) -> tuple[int, str] | None:
    """The line and the fault of the first node that is nested too deeply, or has characters that nothing can have."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return line, f"more than {MAX_DEPTH} levels deep; correct the brackets or the indentation"
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and _NOWHERE.search(event.value):
            # the text may be a key or a hash, which no log should show
            return line, "an escape stands for a null character or half of a surrogate pair; remove it"
    return None
