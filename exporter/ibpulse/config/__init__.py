"""The settings. Flags take precedence over environment variables, the YAML file and the defaults, in this order.

settings       declares each setting once; the commands get an instance
declaration    what such a declaration is
setting_types  kinds of values that only settings have
setting_table  one row per setting for help, docs and schema
consistency    checks across settings
loading        merges the sources and reports all errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ibpulse.config.loading import load
    from ibpulse.config.settings import Settings

__all__ = ["Settings", "load"]


def __getattr__(name: str) -> Any:
    """Import `Settings` and `load` on first use; help needs neither."""
    if name == "Settings":
        from ibpulse.config.settings import Settings

        return Settings
    if name == "load":
        from ibpulse.config.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
