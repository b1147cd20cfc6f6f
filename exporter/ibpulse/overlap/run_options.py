"""Reads the options of a run from a `run_config.yaml` of Megatron-Bridge or a command line of Megatron-LM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ibpulse.errors import ConfigError
from ibpulse.overlap.command_line_options import read_command_line
from ibpulse.overlap.megatron_options import OPTIONS
from ibpulse.overlap.megatron_rules import BRIDGE_PROGRAM, LM_PROGRAM, Program
from ibpulse.overlap.rule_conditions import GivenOption, Options
from ibpulse.overlap.run_config_options import read_run_config_options
from ibpulse.text import escape_controls
from ibpulse.yaml_file import MAX_BYTES

MOST_FAULTS = 20
_YAML_ENDINGS = (".yaml", ".yml", ".json")
_FLAG = re.compile(r"(?:^|[\s\"'(])--[a-z]")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a file says of a run: the program that reads it, the options by name, and remarks about the file."""

    path: Path
    program: Program
    options: Options
    remarks: tuple[str, ...] = ()


def read_run_options(path: Path, settings: Sequence[str] = ()) -> RunOptions:
    """The options in a file, and those of `settings`, texts like `torch=2.6.0` that take precedence.

    Raises:
        ConfigError: the file or a setting cannot be used; lists the faults, at most 20 of the file.
    """
    faults: list[str] = []
    given = _read_settings(settings, faults)
    if faults:
        raise ConfigError(faults)
    text = _read_text(path)
    if path.suffix.lower() in _YAML_ENDINGS or not _FLAG.search(text):
        found = read_run_config_options(path)
        program = BRIDGE_PROGRAM
    else:
        found = read_command_line(path, text)
        program = LM_PROGRAM
    if found.faults:
        hidden = len(found.faults) - MOST_FAULTS
        more = [f"{path}: {hidden} more faults; correct these first"] if hidden > 0 else []
        raise ConfigError([*found.faults[:MOST_FAULTS], *more])
    return RunOptions(path, program, {**found.options, **given}, tuple(found.remarks))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}; check the path and its permissions"]) from None
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{path}: is longer than {MAX_BYTES} bytes; give the command line of one run"])
    if b"\0" in content:
        raise ConfigError([f"{path}: is not a text; give run_config.yaml or a command line"])
    return content.decode("utf-8", "replace")


def _read_settings(settings: Sequence[str], faults: list[str]) -> dict[str, GivenOption]:
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        shown = escape_controls(name)
        if not equals or not text:
            faults.append(f"flag --set: {escape_controls(setting)!r} is not KEY=VALUE; write it like torch=2.6.0")
        elif name not in OPTIONS:
            nearest = get_close_matches(name, OPTIONS, n=1)
            way_out = f"did you mean {nearest[0]}?" if nearest else "docs/overlap.md lists all"
            faults.append(f"flag --set: {shown}: no rule reads such an option; {way_out}")
        else:
            try:
                found[name] = GivenOption(OPTIONS[name].parse(text), "--set")
            except ValueError as error:
                faults.append(f"flag --set: {shown}: {escape_controls(str(error))}")
    return found
