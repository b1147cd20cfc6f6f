"""`ibpulse completion SHELL`: prints a script with which a shell completes commands, flags and file names."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibpulse.errors import IbpulseError
from ibpulse.missing_packages import how_to_install

if TYPE_CHECKING:
    from ibpulse.config import Settings

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"Shell: {', '.join(SHELLS)}.")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the script.

    Raises:
        IbpulseError: shtab is not installed.
    """
    try:
        import shtab  # not for help texts
    except ImportError as error:
        raise IbpulseError(f"completion needs shtab; {how_to_install('shtab')}") from error

    print(shtab.complete(_whole_parser(shtab.FILE), arguments.shell), end="")
    return 0


def _whole_parser(file: dict[str, Any]) -> argparse.ArgumentParser:
    """One parser with all commands; `file` marks arguments that are completed with names of files."""
    from ibpulse.commands import VERBS
    from ibpulse.commands.arguments import recording_or_address
    from ibpulse.commands.parser import build_parser, own_actions

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
                setattr(action, "complete", file)  # noqa: B010 (no attribute of argparse)
    return parser
