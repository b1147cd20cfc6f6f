"""`ibpulse serve`: runs the daemon on this node."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.agent.daemon import run_daemon


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Sample and serve until SIGTERM or SIGINT."""
    return run_daemon(settings)
