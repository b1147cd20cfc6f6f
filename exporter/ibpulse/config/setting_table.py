"""The table of settings: one row per setting, with its flag and variable, and the deprecated settings."""

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
class SettingName:
    """The name of a setting, like `sampler.interval`, with its flag and its environment variable."""

    name: str

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


@dataclass(frozen=True, slots=True)
class SettingRow(SettingName):
    """One setting: its name, type, default as text, help sentence, and field.

    `shown` describes a default that is computed at startup or has no text.
    """

    kind: Kind[Any]
    default: str
    sentence: str
    shown: str = ""
    field: str = ""

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


@dataclass(frozen=True, slots=True)
class DeprecatedSetting(SettingName):
    """A setting of version 0.1 that every source still accepts, with any value and one warning.

    `instead` describes the current behaviour. The value is passed on to the setting named `replacement`, if any, else
    ignored.
    """

    instead: str
    replacement: str = ""

    @property
    def warning(self) -> str:
        """The warning, without the place where the setting was given."""
        what = f"is now {self.replacement}" if self.replacement else "was removed and is ignored"
        return f"{what}; {self.instead}"


DEPRECATED = (
    DeprecatedSetting("analysis.burst-low", "a burst ends at analysis.active-threshold"),
    DeprecatedSetting("analysis.signature-dense", "the reference of dense_like is fixed"),
    DeprecatedSetting("analysis.signature-moe", "the reference of moe_like is fixed"),
    DeprecatedSetting("analysis.signature-tolerance", "the tolerances of the workload signature are fixed"),
    DeprecatedSetting(
        "analysis.signature-confidence", "the minimum confidence of the workload signature is fixed at 0.3"
    ),
    DeprecatedSetting("web.max-wide-requests", "the limit of wide window requests is fixed at 2"),
    DeprecatedSetting("web.max-viewers", "the limit of viewers is fixed at 16"),
)
"""Settings of version 0.1 that version 0.2 still accepts."""

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
