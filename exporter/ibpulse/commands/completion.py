"""`ibpulse completion SHELL`: prints a script with which a shell completes commands, flags and file names."""

from __future__ import annotations

import argparse
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.base.errors import IbpulseError
from ibpulse.base.installation import how_to_install
from ibpulse.commands import VERBS
from ibpulse.commands.options import recording_or_address
from ibpulse.commands.parser import build_parser, own_actions

try:
    import shtab
except ImportError as error:
    raise IbpulseError(f"completion needs shtab; {how_to_install('shtab')}") from error


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the script."""
    print(shtab.complete(_whole_parser(), arguments.shell), end="")
    return 0


def _whole_parser() -> argparse.ArgumentParser:
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
                setattr(action, "complete", shtab.FILE)  # noqa: B010 (no attribute of argparse)
    return parser
