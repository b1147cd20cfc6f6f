"""Parses the arguments of each verb: its own, and the settings that it reads as flags."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NoReturn

from ibpulse.commands import VERBS, Verb
from ibpulse.config.table import CONFIG_FILE, DEPRECATED, GROUPS, ROWS, SettingName, SettingRow, advice
from ibpulse.errors import ConfigError

DESCRIPTION = "Shows what every InfiniBand and RoCE port of this node does, every 10 ms."


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed command line: the verb's own arguments, the settings' flags as texts, unknown flags, and warnings."""

    arguments: argparse.Namespace
    flags: Mapping[str, Sequence[str]]
    faults: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class Parser(argparse.ArgumentParser):
    """A parser that raises where argparse prints and exits."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments.

        Raises:
            ConfigError: always.
        """
        raise ConfigError([f"{message}; see `{self.prog} --help`"])


def overview() -> str:
    """The text of `ibpulse --help`."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb.name:{width}}  {verb.summary}" for verb in VERBS.values())
    return (
        f"usage: ibpulse COMMAND [argument ...]\n\n{DESCRIPTION}\n\ncommands:\n{verbs}\n\n"
        "`ibpulse COMMAND --help` lists the arguments of a command, `ibpulse --version` prints the version.\n\n"
        f"example: {VERBS['demo'].example}\n"
    )


def find_verb(name: str) -> Verb:
    """The verb of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in VERBS:
        raise ConfigError([f"{name}: no such command; choose {', '.join(VERBS)}, or see `ibpulse --help`"])
    return VERBS[name]


def build_parser(verb: Verb) -> Parser:
    """The parser of one verb: its own arguments first, then the settings by group."""
    parser = Parser(
        prog=f"ibpulse {verb.name}",
        description=verb.summary,
        epilog=f"example: {verb.example}",
        allow_abbrev=False,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=8),
    )
    verb.load().add_arguments(parser)
    needed = [_usage_word(action) for action in own_actions(parser) if action.required]
    parser.usage = " ".join([parser.prog, *needed, "[flag ...]"])
    _add_setting(parser, CONFIG_FILE)
    for group, rows in groupby(verb.rows(), lambda row: row.group):
        section = parser.add_argument_group(f"{group} settings", GROUPS[group])
        for row in rows:
            _add_setting(section, row)
    hidden: list[SettingName] = [*verb.ignored_rows(), *verb.deprecated()]
    for setting in hidden:
        parser.add_argument(setting.flag, dest=setting.name, action="append", help=argparse.SUPPRESS)
    return parser


def own_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments declared so far that are neither help nor a setting; argparse itself has no public list."""
    settings = {row.flag for row in (CONFIG_FILE, *ROWS, *DEPRECATED)}
    return [
        action for action in parser._actions if action.dest != "help" and settings.isdisjoint(action.option_strings)
    ]


def parse(verb: Verb, words: Sequence[str]) -> Parsed:
    """The words after the verb, taken apart.

    Raises:
        ConfigError: an argument of the verb itself is missing or wrong; unknown flags are only listed.
    """
    parser = build_parser(verb)
    arguments, unknown = parser.parse_known_args(words)
    values = vars(arguments)
    flags = {row.name: values.pop(row.name) or () for row in (CONFIG_FILE, *ROWS, *DEPRECATED) if row.name in values}
    known = [flag for action in parser._actions if action.help != argparse.SUPPRESS for flag in action.option_strings]
    faults = _unknown_faults(unknown, known, f"see `{parser.prog} --help`")
    ignored = (row for row in verb.ignored_rows() if flags[row.name])
    warnings = [f"flag {row.flag}: has no effect on `{parser.prog}`" for row in ignored]
    return Parsed(arguments, flags, tuple(faults), tuple(warnings))


def _usage_word(action: argparse.Action) -> str:
    """How an argument that must be given stands in the usage: `FILE`, `FILE...`, `-o OUT`, `--time=COLUMN`."""
    value = f"{action.metavar or action.dest}" + ("..." if action.nargs == "+" else "")
    name = "".join(action.option_strings[:1])
    return f"{name}{'=' if name.startswith('--') else ' '}{value}".strip()


def _add_setting(parser: argparse._ActionsContainer, row: SettingRow) -> None:
    text = f"{row.sentence} (default: {row.default_text}; environment: {row.variable})"
    parser.add_argument(row.flag, dest=row.name, action="append", metavar=row.metavar, help=text.replace("%", "%%"))


def _unknown_faults(unknown: Sequence[str], known: Sequence[str], otherwise: str) -> list[str]:
    """One sentence for each unknown flag and each word too many; the word after an unknown flag may be its value."""
    faults = []
    for before, word in zip(("", *unknown), unknown, strict=False):
        if word.startswith("-"):
            flag = word.partition("=")[0]
            faults.append(f"flag {flag}: no such flag; {advice(flag, known, otherwise)}")
        elif not before.startswith("-") or "=" in before:
            faults.append(f"{word}: not expected here; a value belongs to a flag, like --sampler.interval=10ms")
    return faults
