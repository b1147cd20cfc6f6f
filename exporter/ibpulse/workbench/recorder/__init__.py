"""Recordings from this node, from a daemon, or from the log of another program.

sampler_source  this node, sampled while a command runs
from_daemon     windows, ports, events and jobs of a daemon
counter_log     logs of other programs on a regular grid
session         pieces into a growing file, and its progress
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from ibpulse.workbench.recorder.from_daemon import daemon_source, fetch_recent
    from ibpulse.workbench.recorder.sampler_source import node_source

__all__ = ["daemon_source", "fetch_recent", "node_source"]

__getattr__ = late_names(
    __name__,
    {"daemon_source": "from_daemon", "fetch_recent": "from_daemon", "node_source": "sampler_source"},
)
"""One source needs httpx, the other a sampler."""
