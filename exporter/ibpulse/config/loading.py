"""Reads and merges the settings: flags take precedence over environment, file and defaults, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibpulse import owned_files
from ibpulse.config.consistency import FITTED, RULES
from ibpulse.config.setting_table import (
    CONFIG_FILE,
    GROUP_TYPES,
    GROUPS,
    PREFIX,
    ROWS,
    advice,
    describe,
    row,
)
from ibpulse.config.setting_types import ABSENT, Given
from ibpulse.config.settings import Settings
from ibpulse.errors import ConfigError
from ibpulse.yaml_file import YamlEntry, YamlFile, is_mapping, is_scalar, is_sequence

if TYPE_CHECKING:
    import yaml

# Kubernetes sets these variables in every pod whose namespace has a service named ibpulse or ibpulse-*.
_SERVICE_LINK = re.compile(
    r"IBPULSE_(?:[A-Z0-9_]+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://.*")
SHARED_MEMORY = Path("/dev/shm")
STATE = Path("/var/lib")
DEFAULT = "default"


@dataclass(slots=True)
class SettingSource:
    """One source's values as text and their places, by setting; and its errors."""

    texts: dict[str, Given] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, name: str, text: Given, place: str) -> None:
        """Set the text of a setting; `place` says where it was given."""
        self.texts[name], self.places[name] = text, place


def read_flags(flags: Mapping[str, Sequence[str]]) -> SettingSource:
    """Settings from the command line; `flags` maps each setting to all texts given for it.

    A list takes all of them, a single value the last one: a flag appended to a command overrides earlier ones.
    """
    source = SettingSource()
    for known in describe():
        texts = flags.get(known.name, ())
        if texts:
            source.add(known.name, tuple(texts) if known.is_list else texts[-1], f"flag {known.flag}")
    return source


def read_environment(environ: Mapping[str, str]) -> SettingSource:
    """Settings from the variables that begin with `IBPULSE_`, except those that Kubernetes sets for services."""
    source = SettingSource()
    names = {row.variable: row.name for row in describe()}
    for variable, text in environ.items():
        place = f"environment variable {variable}"
        if variable in names:
            source.add(names[variable], text, place)
        elif variable.startswith(PREFIX) and not _is_service_link(variable, text):
            source.faults.append(f"{place}: no such setting; {advice(variable, names)}")
    return source


def read_file(path: Path | None) -> SettingSource:
    """Settings from the YAML file, if any. Scalars are taken as written, whatever type YAML gives them."""
    source = SettingSource()
    if path is not None:
        file = YamlFile(path, source.faults)
        _read_groups(file.compose(f"correct {CONFIG_FILE.flag} or remove it"), file, source)
    return source


def _is_service_link(variable: str, text: str) -> bool:
    if "__" in variable:
        return False
    address = variable.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(text)
    return bool(address or _SERVICE_LINK.fullmatch(variable))


def _read_groups(root: yaml.Node | None, file: YamlFile, source: SettingSource) -> None:
    """Read the file's two levels: groups, and their settings."""
    known = [row.name for row in ROWS]
    mappings = {row.name for row in ROWS if row.kind.mapping}
    for group, line, node in _entries(root, file, "the file"):
        if group not in GROUPS:
            file.refuse(line, f"{group}: no such group of settings; {_group_advice(group)}")
            continue
        for last, inner_line, inner in _entries(node, file, group):
            name = f"{group}.{last}"
            text = _pairs(inner) if name in mappings and is_mapping(inner) else _text(inner)
            place = f"{file.path}:{inner_line}: {name}"
            if name not in known:
                file.refuse(inner_line, f"{name}: no such setting; {advice(name, known)}")
            elif text is None:
                file.refuse(inner_line, f"{name}: not a value; give one value or a plain list")
                source.places[name] = place
            else:
                source.add(name, text, place)


def _group_advice(name: str) -> str:
    first, dot, last = name.partition(".")
    return f"write {first}: {{{last}: ...}}" if dot and first in GROUPS else advice(name, GROUPS)


def _entries(node: yaml.Node | None, file: YamlFile, what: str) -> Iterator[YamlEntry]:
    """The entries of a mapping; none for an empty node."""
    if node is None or (is_scalar(node) and node.value in ABSENT):
        return iter(())
    return file.mapping_entries(node, what, "sampler: {interval: 10ms}", lambda name: f"{name}:")


def _text(node: yaml.Node) -> Given | None:
    """The text or texts of a node as written; None if it is nested more deeply."""
    if is_scalar(node):
        return str(node.value)
    if is_sequence(node) and all(is_scalar(item) for item in node.value):
        return tuple(str(item.value) for item in node.value)
    return None


def _pairs(node: yaml.MappingNode) -> Given | None:
    """The entries of a mapping of values or plain lists as texts like `key=value`; None if it is nested more deeply."""
    found: list[str] = []
    for key, value in node.value:
        texts = _text(value)
        if texts is None or not is_scalar(key):
            return None
        found += (f"{key.value}={text}" for text in ((texts,) if isinstance(texts, str) else texts))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Resolved:
    """Checked settings, and the origin of each by name."""

    settings: Settings
    origins: Mapping[str, str]


def load(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], shared_memory: Path = SHARED_MEMORY
) -> Settings:
    """The merged settings of all sources; see `resolve` for arguments and errors."""
    return resolve(flags, environ, shared_memory).settings


def resolve(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], shared_memory: Path = SHARED_MEMORY
) -> Resolved:
    """The merged settings of all sources, with the origin of each.

    Args:
        flags: texts by setting, as in `{"sampler.interval": ["10ms"]}`, in the order given.
        environ: the environment: settings, the name of the file, and directories for defaults.
        shared_memory: directory of a memory file system.

    Raises:
        ConfigError: lists all errors of all sources.
    """
    given = [read_flags(flags), read_environment(environ)]
    given.append(read_file(_file_named_by(given)))
    found = SettingSource(
        texts={
            "ring.dir": str(find_ring_directory(environ, shared_memory)),
            "capture.dir": str(find_capture_directory(environ)),
        }
    )
    faults = [fault for source in given for fault in source.faults]
    origins = _origins(given)
    settings, wrong = _check(given, found, origins)
    faults += wrong
    if faults:
        raise ConfigError(faults)
    return Resolved(settings, origins)


def find_ring_directory(environ: Mapping[str, str], shared_memory: Path = SHARED_MEMORY) -> Path:
    """Default directory of the ring: shared memory if writable, else systemd's runtime directory, else $TMPDIR."""
    if shared_memory.is_dir() and os.access(shared_memory, os.W_OK | os.X_OK):
        return owned_files.default_directory(shared_memory)
    # systemd separates directories with colons if the unit asks for several
    runtime = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(runtime) if runtime else owned_files.default_directory(Path(environ.get("TMPDIR") or "/tmp"))


def find_capture_directory(environ: Mapping[str, str], state: Path = STATE) -> Path:
    """Default directory of captures: systemd's state directory, else /var/lib if writable, else $TMPDIR."""
    given = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given) / "captures"
    if os.access(state / "ibpulse", os.W_OK | os.X_OK) or os.access(state, os.W_OK | os.X_OK):
        return state / "ibpulse" / "captures"
    return owned_files.default_directory(Path(environ.get("TMPDIR") or "/tmp")) / "captures"


def _file_named_by(given: Sequence[SettingSource]) -> Path | None:
    """The settings file named by the first source that names one."""
    text = next((source.texts[CONFIG_FILE.name] for source in given if CONFIG_FILE.name in source.texts), "")
    return None if text in ABSENT else Path(str(text))


def _origins(given: Sequence[SettingSource]) -> dict[str, str]:
    """The origin of each setting: its place in the first source that gives it."""
    return {
        row.name: next((source.places[row.name] for source in given if row.name in source.places), DEFAULT)
        for row in ROWS
    }


def _check(
    given: Sequence[SettingSource], found: SettingSource, origins: Mapping[str, str]
) -> tuple[Settings, list[str]]:
    """The settings, with defaults in place of invalid values, and the errors."""
    faults: list[str] = []
    wrong: set[str] = set()
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for entry in ROWS:
        default = found.texts.get(entry.name, entry.default)
        text = next((source.texts[entry.name] for source in given if entry.name in source.texts), default)
        try:
            value = entry.kind.parse(text)
        except ValueError as error:
            faults += (f"{origins[entry.name]}: {sentence}" for sentence in error.args)
            wrong.add(entry.name)
            value = entry.kind.parse(default)
        groups[entry.group][entry.field] = value
    settings = Settings(**{group: GROUP_TYPES[group](**values) for group, values in groups.items()})
    settings = _fit_defaults(settings, origins)
    for rule in RULES:
        if wrong.isdisjoint(rule.names):
            faults += (f"{_place(rule.names[0], origins)}: {sentence}" for sentence in rule.find(settings))
    return settings, faults


def _fit_defaults(settings: Settings, origins: Mapping[str, str]) -> Settings:
    """The settings, with unset values limited to what the interval and the history allow."""
    for name, fit in FITTED.items():
        if origins[name] == DEFAULT:
            group, field_name = name.partition(".")[0], row(name).field
            fitted = replace(getattr(settings, group), **{field_name: fit(settings)})
            settings = replace(settings, **{group: fitted})
    return settings


def _place(name: str, origins: Mapping[str, str]) -> str:
    return f"{name} ({DEFAULT})" if origins[name] == DEFAULT else origins[name]
