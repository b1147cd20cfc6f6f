"""What the flags, the environment and the YAML file say, as text with its place. It must not judge any value.

Unknown names and unreadable files are faults; the caller gets them together with all that could be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ibpulse.config.table import CONFIG_FILE, GROUPS, PREFIX, ROWS, advice, describe
from ibpulse.config.values import ABSENT, Given

# Kubernetes puts such variables into every pod that shares its namespace with a service named ibpulse or ibpulse-*.
_SERVICE_LINK = re.compile(
    r"IBPULSE_(?:[A-Z0-9_]+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://.*")


@dataclass(slots=True)
class Source:
    """What one source says: texts by name of the setting, the place of each, and what is wrong with the source."""

    texts: dict[str, Given] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def nested(self, without: frozenset[str] = frozenset()) -> dict[str, dict[str, Given]]:
        """The texts by group and name, except the name of the file and the settings named in `without`."""
        groups: dict[str, dict[str, Given]] = {}
        for name, text in self.texts.items():
            if name not in without and name != CONFIG_FILE.name:
                group, _, last = name.partition(".")
                groups.setdefault(group, {})[last] = text
        return groups


def read_flags(flags: Mapping[str, Sequence[str]]) -> Source:
    """What the command line says; `flags` holds, by name, all texts given.

    A list takes all of them. A single value takes the last, so that a flag can be appended to a command.
    """
    source = Source()
    for row in describe():
        texts = flags.get(row.name, ())
        if texts:
            source.texts[row.name] = tuple(texts) if row.is_list else texts[-1]
            source.places[row.name] = f"flag {row.flag}"
    return source


def read_environment(environ: Mapping[str, str]) -> Source:
    """What the variables that begin with `IBPULSE_` say; those that Kubernetes sets for a service are passed over."""
    source = Source()
    names = {row.variable: row.name for row in describe()}
    for variable, text in environ.items():
        if variable in names:
            source.texts[names[variable]] = text
            source.places[names[variable]] = f"environment variable {variable}"
        elif variable.startswith(PREFIX) and not _is_service_link(variable, text):
            source.faults.append(f"environment variable {variable}: no such setting; {advice(variable, names)}")
    return source


def read_file(path: Path | None) -> Source:
    """What the YAML file says; nothing without a file. Scalars are taken as written, whatever YAML sees in them."""
    source = Source()
    if path is None:
        return source
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        source.faults.append(f"{path}: cannot be read: {error.strerror}; correct {CONFIG_FILE.flag} or leave it out")
    except UnicodeDecodeError as error:
        source.faults.append(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text")
    except yaml.YAMLError as error:
        source.faults.append(_syntax_fault(path, error))
    else:
        _walk(root, path, source)
    return source


def _is_service_link(variable: str, text: str) -> bool:
    if "__" in variable:
        return False
    address = variable.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(text)
    return bool(address or _SERVICE_LINK.fullmatch(variable))


def _syntax_fault(path: Path, error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{path}:{error.problem_mark.line + 1}: not YAML: {error.problem}; correct this line or the one before"
    return f"{path}: not YAML: {str(error).splitlines()[0]}; save the file as plain text"


def _walk(root: yaml.Node | None, path: Path, source: Source) -> None:
    """Read the two levels of the file: groups, and the settings in them."""
    known = [row.name for row in ROWS]
    for group, place, node in _entries(root, path, "the file", source):
        if group not in GROUPS:
            source.faults.append(f"{place}: {group}: no such group of settings; {_group_advice(group)}")
            continue
        for last, inner_place, inner in _entries(node, path, group, source):
            name = f"{group}.{last}"
            if name not in known:
                source.faults.append(f"{inner_place}: {name}: no such setting; {advice(name, known)}")
                continue
            source.places[name] = f"{inner_place}: {name}"
            text = _text(inner)
            if text is None:
                source.faults.append(f"{inner_place}: {name}: holds more than values; give one value or a plain list")
            else:
                source.texts[name] = text


def _group_advice(name: str) -> str:
    first, dot, last = name.partition(".")
    return f"write {first}: {{{last}: ...}}" if dot and first in GROUPS else advice(name, GROUPS)


def _entries(node: yaml.Node | None, path: Path, what: str, source: Source) -> Iterator[tuple[str, str, yaml.Node]]:
    """Key, place and value of each entry of a mapping; no entry where nothing is written."""
    if node is None or (isinstance(node, yaml.ScalarNode) and node.value in ABSENT):
        return
    if not isinstance(node, yaml.MappingNode):
        place = f"{path}:{node.start_mark.line + 1}"
        source.faults.append(f"{place}: {what}: is not a mapping; write it like sampler: {{interval: 10ms}}")
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        name = str(key.value)
        if name in seen:
            source.faults.append(f"{path}:{line}: {name}: is given twice, first in line {seen[name]}; give it once")
        else:
            seen[name] = line
            yield name, f"{path}:{line}", value


def _text(node: yaml.Node) -> Given | None:
    """The text or texts of a node as written; None for anything deeper."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        return tuple(str(item.value) for item in node.value)
    return None
