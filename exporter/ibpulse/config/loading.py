"""The sources put together: flags over environment over YAML file over default. It must not look at anything that
is not passed in, save the file named and the directories that may hold the ring and the captures.

Every fault of every source is found in one run; a fault is one sentence with the place in front.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from ibpulse.config.rules import RULES, fit_capture_after, fit_capture_before, fit_timescales, fit_traffic_window
from ibpulse.config.settings import Settings
from ibpulse.config.sources import Source, read_environment, read_file, read_flags
from ibpulse.config.table import CONFIG_FILE, ROWS
from ibpulse.config.values import ABSENT
from ibpulse.errors import ConfigError

SHARED_MEMORY = Path("/dev/shm")
STATE = Path("/var/lib")
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Checked settings, and by the name of each setting the place that gave it."""

    settings: Settings
    origins: Mapping[str, str]


def load(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], shared_memory: Path = SHARED_MEMORY
) -> Settings:
    """The settings that the sources give together; for the arguments and errors see `resolve`."""
    return resolve(flags, environ, shared_memory).settings


def resolve(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], shared_memory: Path = SHARED_MEMORY
) -> Resolved:
    """The settings that the sources give together, with the place of each.

    Args:
        flags: texts by the name of the setting, as in `{"sampler.interval": ["10ms"]}`, in the order given.
        environ: the environment; it gives settings, the default of `ring.dir`, and the name of the file.
        shared_memory: where the node's memory file system is.

    Raises:
        ConfigError: with all faults of all sources.
    """
    given = [read_flags(flags), read_environment(environ)]
    given.append(read_file(_file_named_by(given)))
    found = Source(
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
    """Where the ring goes when nobody says: in memory if possible, else where systemd or the system keep such files."""
    if shared_memory.is_dir() and os.access(shared_memory, os.W_OK | os.X_OK):
        return shared_memory / "ibpulse"
    # systemd gives several directories with colons between them when the unit asks for several
    runtime = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(runtime) if runtime else Path(environ.get("TMPDIR") or "/tmp") / "ibpulse"


def find_capture_directory(environ: Mapping[str, str], state: Path = STATE) -> Path:
    """Where captures go when nobody says: where systemd or the system keeps what must last, else where nothing must."""
    given = environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given) / "captures"
    if os.access(state / "ibpulse", os.W_OK | os.X_OK) or os.access(state, os.W_OK | os.X_OK):
        return state / "ibpulse" / "captures"
    return Path(environ.get("TMPDIR") or "/tmp") / "ibpulse" / "captures"


def _merge(mappings: Sequence[dict[str, Any]]) -> Settings:
    """The settings made from nested mappings, of which the first goes before the second, and so on."""

    class Sourced(Settings):
        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: PydanticBaseSettingsSource, **__: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(InitSettingsSource(settings_cls, init_kwargs=mapping) for mapping in mappings)

    return Sourced()


def _file_named_by(given: Sequence[Source]) -> Path | None:
    """The file that the first source which speaks of one names."""
    text = next((source.texts[CONFIG_FILE.name] for source in given if CONFIG_FILE.name in source.texts), "")
    return None if text in ABSENT else Path(str(text))


def _origins(given: Sequence[Source]) -> dict[str, str]:
    """By the name of each setting, the place of the first source that gives it."""
    return {
        row.name: next((source.places[row.name] for source in given if row.name in source.places), DEFAULT)
        for row in ROWS
    }


def _check(given: Sequence[Source], found: Source, origins: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings, and the faults of their values; in place of a value at fault stands the default."""
    faults: list[str] = []
    wrong: frozenset[str] = frozenset()
    try:
        settings = _merge([source.nested() for source in (*given, found)])
    except ValidationError as error:
        named = [(".".join(map(str, fault["loc"][:2])), fault) for fault in error.errors()]
        faults = [f"{origins[name]}: {fault['ctx']['error']}" for name, fault in named]
        wrong = frozenset(name for name, _ in named)
        settings = _merge([*(source.nested(wrong) for source in given), found.nested()])
    if origins["analysis.timescales"] == DEFAULT:
        settings = _replace_analysis(settings, timescales=fit_timescales(settings))
    if origins["analysis.traffic-window"] == DEFAULT:
        settings = _replace_analysis(settings, traffic_window=fit_traffic_window(settings))
    if origins["capture.after"] == DEFAULT:
        settings = _replace_capture(settings, after=fit_capture_after(settings))
    if origins["capture.before"] == DEFAULT:
        settings = _replace_capture(settings, before=fit_capture_before(settings))
    for rule in RULES:
        if wrong.isdisjoint(rule.names):
            faults += (f"{_place(rule.names[0], origins)}: {sentence}" for sentence in rule.find(settings))
    return settings, faults


def _replace_analysis(settings: Settings, **fields: object) -> Settings:
    analysis = settings.analysis.model_copy(update=fields)
    return settings.model_copy(update={"analysis": analysis})


def _replace_capture(settings: Settings, **fields: object) -> Settings:
    capture = settings.capture.model_copy(update=fields)
    return settings.model_copy(update={"capture": capture})


def _place(name: str, origins: Mapping[str, str]) -> str:
    return f"{name} ({DEFAULT})" if origins[name] == DEFAULT else origins[name]
