"""A setting: what its declaration in a dataclass says, and what follows from its name."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from ibpulse.base.values import Kind

PREFIX = "IBPULSE_"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name such as `sampler.interval`, kind of value, default as text, help sentence, and field.

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
    def default_text(self) -> str:
        """The default as shown in help and docs."""
        return self.shown or self.default


def setting(kind: Kind[T], default: T | str, sentence: str, *, shown: str = "", name: str = "") -> T:
    """Declare a setting: its kind, its default as text or value, its help sentence.

    `name` is the last part of the setting's name if it differs from the field's.
    """
    text = default if isinstance(default, str) else kind.text(default)
    declared: Any = field(metadata={"setting": Setting(name, kind, text, sentence, shown)})
    return declared  # type: ignore[no-any-return]


def declarations(group: Any, prefix: str = "") -> list[Setting]:
    """The settings of a group, given as class or instance; `prefix` stands before the last part of their names."""
    found = []
    for one in fields(group):
        declared: Setting = one.metadata["setting"]
        name = declared.name or one.name.replace("_", "-")
        found.append(replace(declared, name=prefix + name, field=one.name))
    return found


def written_values(group: Any) -> dict[str, Any]:
    """The values of a group by the last part of the name, as texts and lists of texts."""
    return {each.name: each.kind.write(getattr(group, each.field)) for each in declarations(group)}
