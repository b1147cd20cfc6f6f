"""The declaration of a setting as a field of a dataclass, and how it is read back."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ibpulse.config.setting_types import Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of a setting, except its name; see `setting`."""

    kind: Kind[Any]
    default: str
    sentence: str
    shown: str
    name: str


def setting(kind: Kind[T], default: T | str, sentence: str, *, shown: str = "", name: str = "") -> T:
    """Declare a setting: its type, its default as text or value, its help sentence.

    `shown` describes a default that is computed at startup or has no text. `name` is the last part of the setting's
    name if it differs from the field's.
    """
    text = default if isinstance(default, str) else kind.text(default)
    declared: Any = field(metadata={"setting": Declaration(kind, text, sentence, shown, name)})
    return declared  # type: ignore[no-any-return]


def declarations(group: Any) -> dict[str, tuple[str, Declaration]]:
    """The settings of a group, given as class or instance: field and declaration by the last part of the name."""
    found = {one.name: one.metadata["setting"] for one in fields(group)}
    return {declared.name or name.replace("_", "-"): (name, declared) for name, declared in found.items()}


def written_values(group: Any) -> dict[str, Any]:
    """The values of a group by the last part of the name, as texts and lists of texts."""
    return {last: declared.kind.write(getattr(group, name)) for last, (name, declared) in declarations(group).items()}
