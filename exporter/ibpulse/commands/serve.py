"""`ibpulse serve`: runs the daemon on this node."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ibpulse.config import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: serve is configured by settings alone."""


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Sample and serve until SIGTERM or SIGINT."""
    from ibpulse.commands.logs import set_up_log  # not for help texts
    from ibpulse.daemon import run_daemon

    set_up_log(settings.log.level, settings.log.format)
    return run_daemon(settings)
