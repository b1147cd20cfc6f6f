"""The table of settings: one row per setting, with its flag and variable."""

from __future__ import annotations

from typing import Any, get_type_hints

from ibpulse.agent.config.declaration import Setting, declarations
from ibpulse.agent.config.settings import Settings
from ibpulse.base.values import OPTIONAL_PATH

EVERY_SETTING = "`ibpulse serve --help` lists every setting"
"""The way out for an unknown name that resembles none."""

GROUP_TYPES: dict[str, Any] = get_type_hints(Settings)
"""The class of each group of settings, by the group's name."""

GROUPS: dict[str, str] = {name: " ".join(kind.__doc__.split()) for name, kind in GROUP_TYPES.items()}
"""The description of each group, by its name."""

CONFIG_FILE = Setting(
    "config.file", OPTIONAL_PATH, "", "YAML file with settings; overridden by environment variables and flags.", "none"
)

ROWS = tuple(row for group, kind in GROUP_TYPES.items() for row in declarations(kind, f"{group}."))


def describe() -> tuple[Setting, ...]:
    """All settings in the order of the table, `config.file` first."""
    return (CONFIG_FILE, *ROWS)


def row(name: str) -> Setting:
    """The row of one setting."""
    return next(row for row in describe() if row.name == name)
