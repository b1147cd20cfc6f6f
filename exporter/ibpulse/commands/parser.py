"""Parses a command line: the verb, its own arguments, and the flags of the settings it reads."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import groupby
from typing import Any, NoReturn

from ibpulse.agent.config.settings import CONFIG_FILE, GROUPS, ROWS, Setting
from ibpulse.base.errors import ConfigError
from ibpulse.base.values import Kind, advice, unknown_word
from ibpulse.commands import VERBS, Verb, verbs_of
from ibpulse.commands.options import is_address

ADDRESS = "--url"
OTHER_WORDS = {
    "--address": ADDRESS,
    "--against": ADDRESS,
    "--gateway": ADDRESS,
    "--kind": "--picture",
    "--recording": "--against",
    "--since": "--from",
    "--until": "--to",
}
"""Words for our flags that other verbs or programs use."""
OTHER_VERBS = {"compare": "report", "plot": "render"}
"""Words of other programs for our verbs."""
NEARLY = 0.85
SHOWN_VERBS = 3


@dataclass(frozen=True, slots=True)
class Parsed:
    """A parsed command line: the verb's own arguments, the settings' flags as text, and errors."""

    arguments: argparse.Namespace
    flags: Mapping[str, Sequence[str]]
    faults: tuple[str, ...]


def split_verb(words: Sequence[str]) -> tuple[Verb, Sequence[str]]:
    """The verb that the first two words name, or else the first one, and the words after it."""
    two = " ".join(words[:2])
    if len(words) > 1 and two in VERBS:
        return VERBS[two], words[2:]
    name = two if words[0] not in VERBS and verbs_of(words[0]) else words[0]
    return find_verb(name), words[1:]


def find_verb(name: str) -> Verb:
    """The verb of that name."""
    if name not in VERBS:
        if meant := OTHER_VERBS.get(name) or next((verb for verb in VERBS if verb.endswith(f" {name}")), None):
            raise ConfigError([f"{name}: no such command; did you mean {meant}?"])
        group = [verb.name for verb in verbs_of(name.split()[0])] if name else []
        known = group or [*VERBS, "help", "version"]
        way_out = advice(name, known, f"choose {', '.join(group or VERBS)}")
        raise ConfigError([f"{name}: no such command; {way_out}"])
    return VERBS[name]


class Parser(argparse.ArgumentParser):
    """A parser that raises an exception where argparse prints and exits."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.faults: list[str] = []
        """Errors in values of a `Kind`; all of them are reported."""

    def add_argument(self, *names: str, **named: Any) -> argparse.Action:
        """Declare an argument; a value of a `Kind` has its metavar, unless the choices are listed."""
        if isinstance(named.get("type"), Kind) and "choices" not in named:
            named.setdefault("metavar", named["type"].metavar)
        return super().add_argument(*names, **named)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value of a text, None if it is wrong; argparse calls it."""
        if not isinstance(action.type, Kind):
            return super()._get_value(action, arg_string)
        try:
            return action.type.parse(arg_string)
        except ValueError as error:
            self.faults += (f"{_name(action)}: {sentence}" for sentence in error.args)
            return None

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        raise ConfigError([f"{message}; see `{self.prog} --help`"])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is none of the choices; argparse calls it."""
        if action.choices is None or value is None or value in action.choices:
            return
        raise ConfigError([f"{_name(action)}: {unknown_word(str(value), map(str, action.choices))}"])


def _name(action: argparse.Action) -> str:
    """An argument as errors name it."""
    return f"flag {action.option_strings[-1]}" if action.option_strings else str(action.metavar or action.dest)


class Help(argparse.Action):
    """Prints the help of a verb, with or without its settings, and exits."""

    def __init__(self, option_strings: Sequence[str], verb: Verb, show_settings: bool, **named: Any) -> None:
        super().__init__(option_strings, nargs=0, default=argparse.SUPPRESS, **named)
        self._verb, self._show_settings = verb, show_settings

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and exit."""
        build_parser(self._verb, show_settings=self._show_settings).print_help()
        parser.exit()


def build_parser(verb: Verb, *, show_settings: bool = False) -> Parser:
    """The parser of one verb: its own arguments, then the settings by group, which only --help-all shows."""
    parser = Parser(
        prog=f"ibpulse {verb.name}",
        description=verb.summary,
        epilog=f"example: {verb.example}",
        allow_abbrev=False,
        add_help=False,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=26),
    )
    parser.add_argument("-h", "--help", action=Help, verb=verb, show_settings=False, help="Show this help.")
    parser.add_argument(
        "--help-all", action=Help, verb=verb, show_settings=True, help="Show this help with all settings."
    )
    for option in verb.load_options():
        place = parser.add_argument_group(*option.group) if option.group else parser
        place.add_argument(*option.names, **option.named)
    needed = [_usage_word(action) for action in own_actions(parser) if action.required]
    parser.usage = " ".join([parser.prog, *needed, "[flag ...]"])
    _add_settings(parser, verb, show_settings)
    return parser


def _add_settings(parser: Parser, verb: Verb, shown: bool) -> None:
    for group, rows in groupby((CONFIG_FILE, *setting_rows(verb)), lambda row: row.group):
        titled = parser.add_argument_group(f"{group} settings", GROUPS[group]) if shown and group in GROUPS else parser
        for row in rows:
            text = f"{row.sentence} (default: {row.default_text}; environment: {row.variable})".replace("%", "%%")
            titled.add_argument(
                row.flag,
                dest=row.name,
                action="append",
                metavar=row.kind.metavar,
                help=text if shown else argparse.SUPPRESS,
            )


def setting_rows(verb: Verb) -> list[Setting]:
    """The settings that have an effect on a verb, in the order of the table."""
    return [row for row in ROWS if row.group in verb.settings or row.name in verb.settings]


def own_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments declared so far except help and settings; argparse has no public list of them."""
    settings = {row.flag for row in (CONFIG_FILE, *ROWS)}
    return [
        action
        for action in parser._actions
        if action.dest not in ("help", "help_all") and settings.isdisjoint(action.option_strings)
    ]


def parse(verb: Verb, words: Sequence[str]) -> Parsed:
    """Parse the words after the verb; a missing argument or an unknown choice ends it, other errors are listed."""
    parser = build_parser(verb, show_settings=True)
    # so that an address may also follow flags
    arguments, unknown = parser.parse_known_intermixed_args(words)
    values = vars(arguments)
    flags = {row.name: values.pop(row.name) or () for row in (CONFIG_FILE, *ROWS) if row.name in values}
    known = [flag for action in parser._actions if action.help != argparse.SUPPRESS for flag in action.option_strings]
    # a value that stands apart from its unknown flag may have been taken for the address
    address = getattr(arguments, "address", None) or ""
    faults = _unknown_faults(unknown, known, parser.prog, address)
    given = {word.partition("=")[0] for word in words}
    for option in verb.load_options():
        others = given.intersection(option.names) and [other for other in option.excludes if other in given]
        parser.faults += (f"flag {option.names[0]}: cannot be combined with {other}" for other in others)
    if verb.checks_flags:
        arguments.faults = parser.faults
    else:
        faults += parser.faults
    return Parsed(arguments, flags, tuple(faults))


def _usage_word(action: argparse.Action) -> str:
    """An argument as the usage line shows it: `FILE`, `FILE...`, `[FILE...]`, `-o OUT`, `--time=COLUMN`."""
    if action.nargs == "*":
        return f"[{action.metavar or action.dest}...]"
    value = f"{action.metavar or action.dest}" + ("..." if action.nargs == "+" else "")
    name = "".join(action.option_strings[:1])
    return f"{name}{'=' if name.startswith('--') else ' '}{value}".strip()


def _unknown_faults(unknown: Sequence[str], known: Sequence[str], program: str, address: str) -> list[str]:
    """An error for each unknown flag and each surplus word; the word after an unknown flag may be its value."""
    faults = []
    for before, word, after in zip(("", *unknown), unknown, (*unknown[1:], ""), strict=False):
        if word.startswith("-"):
            flag, _, value = word.partition("=")
            faults.append(f"flag {flag}: no such flag; {_hint(flag, value or after or address, known, program)}")
        elif not before.startswith("-") or "=" in before:
            faults.append(f"{word}: not expected here; a value belongs to a flag, like --sampler.interval=10ms")
    return faults


def _hint(flag: str, value: str, known: Sequence[str], program: str) -> str:
    """Advice on an unknown flag with its value."""
    if ADDRESS in known and is_address(value):
        return f"did you mean {ADDRESS}={value}?"
    if OTHER_WORDS.get(flag) in known:
        return f"did you mean {OTHER_WORDS[flag]}?"
    if nearly := get_close_matches(flag, known, n=1, cutoff=NEARLY):
        return f"did you mean {nearly[0]}?"
    others = [name for name, verb in VERBS.items() if _has_flag(verb, flag)]
    more = f" and {len(others) - SHOWN_VERBS} more" if len(others) > SHOWN_VERBS else ""
    belongs = ", ".join(f"`ibpulse {name}`" for name in others[:SHOWN_VERBS])
    return f"it is a flag of {belongs}{more}" if others else advice(flag, known, f"see `{program} --help`")


def _has_flag(verb: Verb, flag: str) -> bool:
    return any(flag in action.option_strings for action in own_actions(build_parser(verb)))
