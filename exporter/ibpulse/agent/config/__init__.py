"""The settings. Flags take precedence over environment variables, the YAML file and the defaults, in this order.

settings  declares each setting once, which makes a table of rows; the commands get an instance
loading   merges the sources, checks across settings, and reports all errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from ibpulse.agent.config.loading import load
    from ibpulse.agent.config.settings import Settings

__all__ = ["Settings", "load"]

__getattr__ = late_names(__name__, {"Settings": "settings", "load": "loading"})
"""Help needs neither."""
