"""Reads, merges and checks the settings, and adapts defaults to other settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibpulse.agent.config.settings import (
    CONFIG_FILE,
    EVERY_SETTING,
    GROUP_TYPES,
    GROUPS,
    PREFIX,
    ROWS,
    Settings,
    describe,
    row,
)
from ibpulse.base import owned_files
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import SECOND_NS, format_duration
from ibpulse.base.values import ABSENT, Given, advice
from ibpulse.base.yaml import YamlEntry, YamlFile, is_mapping, is_scalar, texts_of

if TYPE_CHECKING:
    import yaml


def _history_covers_captures(settings: Settings) -> Iterator[str]:
    history, wanted = settings.sampler.history, settings.capture.before + settings.capture.after
    if history < wanted:
        yield (
            f"{format_duration(settings.capture.before)} with capture.after, "
            f"{format_duration(settings.capture.after)}, exceeds sampler.history, {format_duration(history)}; "
            f"raise sampler.history to {format_duration(wanted)} or shorten the capture"
        )


def _history_covers_traffic(settings: Settings) -> Iterator[str]:
    history, window = settings.sampler.history, settings.analysis.traffic_window
    if history < window:
        yield (
            f"{format_duration(history)} is shorter than analysis.traffic-window; "
            f"raise sampler.history to {format_duration(window)} or shorten that window"
        )


Rule = Callable[[Settings], Iterator[str]]
RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("sampler.history", "analysis.traffic-window"), _history_covers_traffic),
    (("capture.before", "capture.after", "sampler.history"), _history_covers_captures),
)
"""Checks of several settings, each with their names; the errors that it yields are reported for the first of them."""

FITTED: dict[str, Callable[[Settings], int]] = {
    # in whole seconds
    "analysis.traffic-window": lambda settings: min(
        settings.analysis.traffic_window, settings.sampler.history // SECOND_NS * SECOND_NS
    ),
    "capture.after": lambda settings: min(settings.capture.after, settings.sampler.history // 4),
    "capture.before": lambda settings: min(
        settings.capture.before, max(SECOND_NS, settings.sampler.history - settings.capture.after)
    ),
}
"""Defaults limited by other settings, applied in this order."""


# Kubernetes sets these variables in every pod whose namespace has a service named ibpulse or ibpulse-*.
_SERVICE_LINK = re.compile(
    r"IBPULSE_(?:[A-Z0-9_]+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://.*")
SHARED_MEMORY = Path("/dev/shm")
STATE = Path("/var/lib")
DEFAULT = "default"

Placed = tuple[Given, str]
"""The text that a source gives for a setting, and its place."""


def read_flags(flags: Mapping[str, Sequence[str]]) -> dict[str, Placed]:
    """Settings from the command line; `flags` maps each setting to all texts given for it.

    A list takes all of them, a single value the last one: a flag appended to a command overrides earlier ones.
    """
    given = [(known, flags[known.name]) for known in describe() if flags.get(known.name)]
    return {
        known.name: (tuple(texts) if known.kind.is_list else texts[-1], f"flag {known.flag}") for known, texts in given
    }


def read_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, Placed]:
    """Settings from the variables that begin with `IBPULSE_`, except those that Kubernetes sets for services."""
    given: dict[str, Placed] = {}
    names = {row.variable: row.name for row in describe()}
    for variable, text in environ.items():
        place = f"environment variable {variable}"
        if variable in names:
            given[names[variable]] = (text, place)
        elif variable.startswith(PREFIX) and not _is_service_link(variable, text):
            faults.append(f"{place}: no such setting; {advice(variable, names, EVERY_SETTING)}")
    return given


def _is_service_link(variable: str, text: str) -> bool:
    if "__" in variable:
        return False
    address = variable.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(text)
    return bool(address or _SERVICE_LINK.fullmatch(variable))


def read_file(path: Path, faults: list[str]) -> dict[str, Placed]:
    """Settings from the YAML file. Scalars are taken as written, whatever type YAML gives them."""
    file, given = YamlFile(path, faults), {}
    kinds = {row.name: row.kind for row in ROWS}
    for group, line, node in _entries(file.compose(f"correct {CONFIG_FILE.flag} or remove it"), file, "the file"):
        if group not in GROUPS:
            file.refuse(line, f"{group}: no such group of settings; {_group_advice(group)}")
            continue
        for last, inner_line, inner in _entries(node, file, group):
            name = f"{group}.{last}"
            if name not in kinds:
                file.refuse(inner_line, f"{name}: no such setting; {advice(name, kinds, EVERY_SETTING)}")
                continue
            text = _pairs(inner) if kinds[name].mapping and is_mapping(inner) else texts_of(inner)
            if text is None:
                file.refuse(inner_line, f"{name}: not a value; give one value or a plain list")
            else:
                given[name] = (text, f"{path}:{inner_line}: {name}")
    return given


def _group_advice(name: str) -> str:
    first, dot, last = name.partition(".")
    return f"write {first}: {{{last}: ...}}" if dot and first in GROUPS else advice(name, GROUPS, EVERY_SETTING)


def _entries(node: yaml.Node | None, file: YamlFile, what: str) -> Iterator[YamlEntry]:
    """The entries of a mapping; none for an empty node."""
    if node is None or (is_scalar(node) and node.value in ABSENT):
        return iter(())
    return file.mapping_entries(node, what, "sampler: {interval: 10ms}")


def _pairs(node: yaml.MappingNode) -> Given | None:
    """The entries of a mapping of values or plain lists as texts like `key=value`; None if it is nested more deeply."""
    found: list[str] = []
    for name, value in node.value:
        texts = texts_of(value)
        if texts is None or not is_scalar(name):
            return None
        found += (f"{name.value}={text}" for text in ((texts,) if isinstance(texts, str) else texts))
    return tuple(found)


def load(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], shared_memory: Path = SHARED_MEMORY
) -> Settings:
    """The merged settings of all sources; see `resolve` for arguments and errors."""
    return resolve(flags, environ, shared_memory)[0]


def resolve(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], shared_memory: Path = SHARED_MEMORY
) -> tuple[Settings, Mapping[str, str]]:
    """The merged settings of all sources, and the origin of each by name.

    Args:
        flags: texts by setting, as in `{"sampler.interval": ["10ms"]}`, in the order given.
        environ: the environment: settings, the name of the file, and directories for defaults.
        shared_memory: directory of a memory file system.

    Raises:
        ConfigError: lists all errors of all sources.
    """
    faults: list[str] = []
    given = {**read_environment(environ, faults), **read_flags(flags)}
    path = given[CONFIG_FILE.name][0] if CONFIG_FILE.name in given else ""
    if path not in ABSENT:
        given = {**read_file(Path(str(path)), faults), **given}
    found = {
        "ring.dir": str(find_ring_directory(environ, shared_memory)),
        "capture.dir": str(find_capture_directory(environ)),
    }
    settings = _check({row.name: (found.get(row.name, row.default), DEFAULT) for row in ROWS}, given, faults)
    if faults:
        raise ConfigError(faults)
    return settings, {row.name: given[row.name][1] if row.name in given else DEFAULT for row in ROWS}


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


def _check(defaults: Mapping[str, Placed], given: Mapping[str, Placed], faults: list[str]) -> Settings:
    """The settings, with defaults in place of invalid values; errors are appended to `faults`."""
    wrong: set[str] = set()
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for entry in ROWS:
        text, place = given.get(entry.name, defaults[entry.name])
        try:
            value = entry.kind.parse(text)
        except ValueError as error:
            faults += (f"{place}: {sentence}" for sentence in error.args)
            wrong.add(entry.name)
            value = entry.kind.parse(defaults[entry.name][0])
        groups[entry.group][entry.field] = value
    settings = Settings(**{group: GROUP_TYPES[group](**values) for group, values in groups.items()})
    for name, fit in FITTED.items():
        if name not in given:
            group, field = name.partition(".")[0], row(name).field
            settings = replace(settings, **{group: replace(getattr(settings, group), **{field: fit(settings)})})
    for names, find in RULES:
        if wrong.isdisjoint(names):
            place = given[names[0]][1] if names[0] in given else f"{names[0]} ({DEFAULT})"
            faults += (f"{place}: {sentence}" for sentence in find(settings))
    return settings
