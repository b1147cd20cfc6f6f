"""The options that several verbs share. A module for each group of verbs has the tables of its verbs.

They import nothing that is slow to load, because help needs them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ibpulse.base.errors import ConfigError
from ibpulse.base.values import MOMENT, SOME_TIME

LAST = "60s"
URL_EXAMPLE = "http://node7:10055"
_ADDRESS = re.compile(r"https?://.+|[^/:]+:[0-9]+(/.*)?")


class Option:
    """An argument of a verb, by the arguments of argparse.

    If it is `repeated`, its value is the list of all. It cannot be combined with the flags in `excludes`. `group` is
    the title and the text above it in help.
    """

    def __init__(
        self,
        *names: str,
        repeated: bool = False,
        excludes: Sequence[str] = (),
        group: Sequence[str] = (),
        **named: Any,
    ) -> None:
        self.names, self.named = names, named | ({"action": "append", "default": []} if repeated else {})
        self.excludes, self.group = excludes, group


def is_address(text: str) -> bool:
    """Whether a text is the address of a daemon or a gateway: a URL, or HOST:PORT if no file has that name."""
    return bool(_ADDRESS.fullmatch(text)) and not Path(text).exists()


def recording_or_address(text: str) -> Path | str:
    """A word as the address of a daemon, else as a file."""
    return text if is_address(text) else Path(text)


def url_options(text: str) -> tuple[Option, ...]:
    """`--url`, described by `text`, and its value as a word."""
    return (
        Option("address", nargs="?", help=argparse.SUPPRESS),
        Option("--url", metavar="URL", help=f"{text} A word without --url is the same."),
    )


def read_url(arguments: argparse.Namespace) -> str | None:
    """The address that `--url` or a word gives."""
    if arguments.url and arguments.address:
        raise ConfigError(
            [f"{arguments.address}: not expected here, because --url gives the address; omit one of them"]
        )
    given: str | None = arguments.url or arguments.address
    return given


def recording_options(text: str) -> tuple[Option, ...]:
    """The recordings to read, described by `text`: files or addresses of daemons."""
    return (
        Option("files", type=recording_or_address, nargs="*", metavar="RECORDING", help=text),
        Option(
            "--url",
            repeated=True,
            metavar="URL",
            help=f"Daemon whose past, {LAST} or --last, is a further recording; repeatable.",
        ),
    )


def against_options(text: str) -> tuple[Option, ...]:
    """`--against` and its daemon `--url`, and `--last`."""
    return (
        Option("--against", type=recording_or_address, metavar="RECORDING", help=text),
        Option("--url", metavar="URL", help=f"Compare with the recent past of a daemon, such as {URL_EXAMPLE}."),
        Option("--last", type=SOME_TIME, help=f"Compare with this much of its end (default: all; {LAST} of a daemon)."),
    )


def force_option(file: str) -> Option:
    """`--force` for the file with this placeholder."""
    return Option("--force", action="store_true", help=f"Replace {file} if it exists.")


def output_options(text: str, *, required: bool) -> tuple[Option, ...]:
    """The file to write, described by `text`, `--force`, and the names to show: `--title`."""
    return (
        Option("-o", "--output", type=Path, required=required, metavar="OUT", help=text),
        force_option("OUT"),
        Option(
            "--title",
            repeated=True,
            metavar="TEXT",
            help="Name to show for a recording; repeatable, in the order of the files (default: the names of the "
            "files).",
        ),
    )


def format_option(*formats: str) -> Option:
    """`--format` with one of these, by default the first."""
    return Option(
        "--format", choices=formats, default=formats[0], help=f"Output format: {', '.join(formats)} (default: text)."
    )


TRIM = Option("--trim", action="store_true", help="Cut the silence before the first active sample and after the last.")
WINDOW = (
    Option(
        "--last",
        type=SOME_TIME,
        excludes=("--from", "--to"),
        help="Use only this much of the end of each recording; not with --from or --to.",
    ),
    Option(
        "--from",
        dest="begin",
        type=MOMENT,
        help="Start at this offset into each recording (10s) or at this wall-clock time (2026-11-21T12:00:00Z).",
    ),
    Option("--to", dest="end", type=MOMENT, help="End at this offset or wall-clock time, like --from."),
    TRIM,
    Option(
        "--port",
        repeated=True,
        metavar="PORT",
        help="Port or device to show, such as mlx5_0:1; repeatable (default: the rails).",
    ),
)
"""The part of recordings to use."""
