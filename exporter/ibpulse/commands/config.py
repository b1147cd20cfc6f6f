"""`ibpulse config` shows the configuration, `ibpulse completion` prints a script for a shell."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from ibpulse.agent.config import Settings
from ibpulse.agent.config.settings import row
from ibpulse.agent.sysfs.overrides import read_overrides
from ibpulse.base.text import escape_controls
from ibpulse.commands import VERBS
from ibpulse.commands.options import recording_or_address
from ibpulse.commands.parser import build_parser, own_actions
from ibpulse.core.http.web_config import read_rules


def run_completion(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the script."""
    import shtab  # noqa: PLC0415 (optional)

    print(shtab.complete(_whole_parser(shtab.FILE), arguments.shell), end="")
    return 0


def _whole_parser(complete_files: object) -> argparse.ArgumentParser:
    """One parser with all commands; some arguments are completed with names of files."""
    parser = argparse.ArgumentParser(prog="ibpulse")
    parser.add_argument("--version", action="store_true", help="Print the version.")
    commands = parser.add_subparsers(metavar="COMMAND")
    groups = {}
    for verb in VERBS.values():
        group, _, word = verb.name.rpartition(" ")
        if group and group not in groups:
            first = commands.choices.get(group) or commands.add_parser(group, help=f"{group.capitalize()} commands.")
            groups[group] = first.add_subparsers(metavar="COMMAND")
        place = groups[group] if group else commands
        place.add_parser(word, help=verb.summary)
        built = place.choices[word] = build_parser(verb, show_settings=True)
        for action in own_actions(built):
            if action.type in (Path, recording_or_address):
                setattr(action, "complete", complete_files)  # noqa: B010 (no attribute of argparse)
    return parser


def run_config(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the configuration, or the origin of each value; invalid settings are reported before this runs."""
    read_overrides(settings.topology.file)
    if settings.web.config_file:
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
