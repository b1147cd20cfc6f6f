"""The settings: one checked table (flags over environment over YAML file over default). It must not start anything.

table       names, defaults and help in words: drives help texts and documents
settings    the same names with types and checks: the value that the commands get
values      text to value and back
sources     what flags, environment and file say
loading     the sources put together, with every fault found
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ibpulse.config.loading import load
    from ibpulse.config.settings import Settings

__all__ = ["Settings", "load"]


def __getattr__(name: str) -> Any:
    """`Settings` and `load`, imported when first asked for: help texts need the table alone, and must be quick."""
    if name == "Settings":
        from ibpulse.config.settings import Settings

        return Settings
    if name == "load":
        from ibpulse.config.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
