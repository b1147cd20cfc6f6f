"""`ibpulse config`: checks the configuration, or prints the resulting values."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ibpulse.config.setting_table import row
from ibpulse.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ibpulse.config import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action and the format."""
    parser.add_argument(
        "action",
        choices=("check", "print"),
        metavar="check|print",
        help="check shows where each value comes from; print prints the configuration.",
    )
    parser.add_argument(
        "--format",
        choices=("yaml", "json"),
        default="yaml",
        help="Output format of print; --config.file accepts both (default: yaml).",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the configuration, or the origin of each value; invalid settings are reported before this runs.

    Raises:
        ConfigError: the file of topology.file or the web configuration file is invalid.
    """
    from ibpulse.sysfs.overrides import read_overrides  # not for help texts

    read_overrides(settings.topology.file)
    if settings.web.config_file:
        from ibpulse.commands.logs import set_up_log  # not for help texts
        from ibpulse.web.auth.reload import WebConfigReloader

        # weak points of the file are log messages
        set_up_log(settings.log.level, settings.log.format)
        WebConfigReloader(settings.web.config_file)
    written = settings.written()
    if arguments.action == "check":
        print("ok", *map(escape_controls, _origin_lines(written, arguments.origins)), sep="\n")
    elif arguments.format == "json":
        print(json.dumps(written, indent=2))
    else:
        import yaml  # not for help texts

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
