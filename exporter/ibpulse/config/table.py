"""The table of settings: a row for each declaration, names of all sources, and the settings that are deprecated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_type_hints

from ibpulse.config.setting_types import OPTIONAL_PATH, Kind
from ibpulse.config.settings import Settings, declarations

PREFIX = "IBPULSE_"


@dataclass(frozen=True, slots=True)
class SettingName:
    """The name of a setting, as in `sampler.interval`, and what that is as a flag and as a variable."""

    name: str

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return PREFIX + self.name.upper().replace(".", "__").replace("-", "_")


@dataclass(frozen=True, slots=True)
class SettingRow(SettingName):
    """One setting: its name, kind of value, its default as text, a help sentence, the field that holds it.

    `shown` stands for a default that is found only at the start, or that is no text.
    """

    kind: Kind[Any]
    default: str
    sentence: str
    shown: str = ""
    field: str = ""

    @property
    def metavar(self) -> str:
        """The word for its value."""
        return self.kind.metavar

    @property
    def is_list(self) -> bool:
        """Whether the setting takes several values."""
        return self.metavar.endswith(",...")

    @property
    def default_text(self) -> str:
        """The default for people."""
        return self.shown or self.default


@dataclass(frozen=True, slots=True)
class DeprecatedSetting(SettingName):
    """A setting of version 0.1 that is still accepted everywhere, with any value and one warning.

    `instead` says what holds now. The value goes to the setting named `replacement`, where there is one; else it is
    ignored.
    """

    instead: str
    replacement: str = ""

    @property
    def warning(self) -> str:
        """The end of the warning, after the place where the setting was given."""
        what = f"is now {self.replacement}" if self.replacement else "was removed and is ignored"
        return f"{what}; {self.instead}"


DEPRECATED = (
    DeprecatedSetting("analysis.burst-low", "a burst ends at analysis.active-threshold"),
    DeprecatedSetting("analysis.signature-dense", "the reference of dense_like is fixed"),
    DeprecatedSetting("analysis.signature-moe", "the reference of moe_like is fixed"),
    DeprecatedSetting("analysis.signature-tolerance", "the tolerances of the workload signature are fixed"),
    DeprecatedSetting(
        "analysis.signature-confidence", "the least confidence of the workload signature is fixed at 0.3"
    ),
    DeprecatedSetting("web.max-wide-requests", "the limit of wide window requests is fixed at 2"),
    DeprecatedSetting("web.max-viewers", "the limit of viewers is fixed at 16"),
)
"""Settings of version 0.1 that version 0.2 accepts."""

GROUP_TYPES: dict[str, Any] = get_type_hints(Settings)
"""The class of each group of settings, by the group's name."""

GROUPS: dict[str, str] = {name: " ".join(kind.__doc__.split()) for name, kind in GROUP_TYPES.items()}
"""What each group is for."""

CONFIG_FILE = SettingRow(
    "config.file", OPTIONAL_PATH, "", "YAML file with settings; overridden by environment variables and flags.", "none"
)

ROWS = tuple(
    SettingRow(f"{group}.{last}", declared.kind, declared.default, declared.sentence, declared.shown, name)
    for group, kind in GROUP_TYPES.items()
    for last, (name, declared) in declarations(kind).items()
)


def describe() -> tuple[SettingRow, ...]:
    """Every setting in the order of the table, `config.file` first."""
    return (CONFIG_FILE, *ROWS)


def row(name: str) -> SettingRow:
    """The row of one setting."""
    return next(row for row in describe() if row.name == name)


def advice(unknown: str, known: Iterable[str], otherwise: str = "`ibpulse serve --help` lists every setting") -> str:
    """The end of a message about an unknown name: the nearest known one, or what else to do."""
    from difflib import get_close_matches  # only for those who mistyped

    nearest = get_close_matches(unknown, list(known), n=1, cutoff=0.6)
    return f"did you mean {nearest[0]}?" if nearest else otherwise
