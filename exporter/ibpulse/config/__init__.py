"""The settings, each declared once: flags over environment variables over YAML file over default.

settings       the declarations, and the checked settings that the commands get
setting_types  the kinds of values: text to value and back
table          one row per setting for help texts, documents and schema; the deprecated settings
consistency    checks across settings
loading        what the sources say, put together, with every fault found
schema         the YAML file as a JSON schema
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ibpulse.config.loading import load
    from ibpulse.config.settings import Settings

__all__ = ["Settings", "load"]


def __getattr__(name: str) -> Any:
    """`Settings` and `load`, imported when first asked for: help needs neither."""
    if name == "Settings":
        from ibpulse.config.settings import Settings

        return Settings
    if name == "load":
        from ibpulse.config.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
