"""The table of settings: one row per setting, with its flag and variable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_type_hints

from ibpulse.config.declaration import declarations
from ibpulse.config.setting_types import OPTIONAL_PATH, Kind
from ibpulse.config.settings import Settings

PREFIX = "IBPULSE_"
LEAST_PART = 4


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting: its name such as `sampler.interval`, type, default as text, help sentence, and field.

    `shown` describes a default that is computed at startup or has no text.
    """

    name: str
    kind: Kind[Any]
    default: str
    sentence: str
    shown: str = ""
    field: str = ""

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper().replace(".", "__").replace("-", "_")

    @property
    def metavar(self) -> str:
        """The placeholder of its value in help."""
        return self.kind.metavar

    @property
    def is_list(self) -> bool:
        """Whether the setting takes several values."""
        return self.metavar.endswith(",...")

    @property
    def default_text(self) -> str:
        """The default as shown in help and docs."""
        return self.shown or self.default


GROUP_TYPES: dict[str, Any] = get_type_hints(Settings)
"""The class of each group of settings, by the group's name."""

GROUPS: dict[str, str] = {name: " ".join(kind.__doc__.split()) for name, kind in GROUP_TYPES.items()}
"""The description of each group, by its name."""

CONFIG_FILE = SettingRow(
    "config.file", OPTIONAL_PATH, "", "YAML file with settings; overridden by environment variables and flags.", "none"
)

ROWS = tuple(
    SettingRow(f"{group}.{last}", declared.kind, declared.default, declared.sentence, declared.shown, name)
    for group, kind in GROUP_TYPES.items()
    for last, (name, declared) in declarations(kind).items()
)


def describe() -> tuple[SettingRow, ...]:
    """All settings in the order of the table, `config.file` first."""
    return (CONFIG_FILE, *ROWS)


def row(name: str) -> SettingRow:
    """The row of one setting."""
    return next(row for row in describe() if row.name == name)


def advice(unknown: str, known: Iterable[str], otherwise: str = "`ibpulse serve --help` lists every setting") -> str:
    """A hint for an unknown name: the nearest known one, or the first that contains it, or `otherwise`."""
    from difflib import get_close_matches  # needed only after a typing error

    names = list(known)
    nearest = get_close_matches(unknown, names, n=1, cutoff=0.6)
    if not nearest and len(unknown) >= LEAST_PART:
        nearest = [name for name in names if unknown in name]
    return f"did you mean {nearest[0]}?" if nearest else otherwise
