"""`ibpulse config`: checks the configuration, or prints the resulting values."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

import yaml

from ibpulse.agent.config import Settings
from ibpulse.agent.config.settings import row
from ibpulse.agent.sysfs.overrides import read_overrides
from ibpulse.base.text import escape_controls
from ibpulse.commands.logs import set_up_log
from ibpulse.core.http.reload import read_rules


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the configuration, or the origin of each value; invalid settings are reported before this runs.

    Raises:
        ConfigError: the file of topology.file or the web configuration file is invalid.
    """
    read_overrides(settings.topology.file)
    if settings.web.config_file:
        # weak points of the file are log messages
        set_up_log(settings.log.level, settings.log.format)
        read_rules(settings.web.config_file)
    written = settings.written()
    if arguments.action == "check":
        print("ok", *map(escape_controls, _origin_lines(written, arguments.origins)), sep="\n")
    elif arguments.format == "json":
        print(json.dumps(written, indent=2))
    else:
        print(yaml.safe_dump(written, sort_keys=False), end="")
    return 0


def _origin_lines(written: Mapping[str, Mapping[str, object]], origins: Mapping[str, str]) -> list[str]:
    """One line per setting: its value and where it comes from."""
    lines = []
    for name, origin in origins.items():
        group, _, last = name.partition(".")
        value = written[group][last]
        text = ",".join(value) if isinstance(value, list) else value
        lines.append(f"{name} = {row(name).shown if text in (None, '') else text} ({origin})")
    return lines
