"""Writes the rules and the dashboards: `python -m tools.grafana`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ibpulse.base.errors import ConfigError
from tools.grafana.boards import board_files
from tools.grafana.rule_files import resolve, rule_files


def main(arguments: list[str] | None = None) -> int:
    """Write the chosen files; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.grafana", description="Write dashboards and rules.")
    parser.add_argument("what", choices=("rules", "dashboards"))
    parser.add_argument("directory", type=Path, help="where to write, such as dashboards/rules")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="override a number in the rules"
    )
    given = parser.parse_args(arguments)
    try:
        overrides = dict(_split(text) for text in given.set)
        files = rule_files(resolve(overrides)) if given.what == "rules" else board_files()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    given.directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (given.directory / name).write_text(text)
    return 0


def _split(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise ConfigError([f'--set: "{text}" has no value; write NAME=VALUE, for example moe_for=1m'])
    return name, value


if __name__ == "__main__":
    sys.exit(main())
