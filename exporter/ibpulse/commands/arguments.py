"""Arguments shared by several verbs: addresses, durations, the part of a recording to use, and the file to write."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ibpulse.base.values import MOMENT, SOME_TIME
from ibpulse.errors import ConfigError
from ibpulse.units import parse_duration

if TYPE_CHECKING:
    from ibpulse.recordings import Recording
    from ibpulse.reports.span import Outside, ReportOptions

LAST = "60s"
URL_EXAMPLE = "http://node7:10055"
_ADDRESS = re.compile(r"https?://.+|[^/:]+:[0-9]+(/.*)?")


def is_address(text: str) -> bool:
    """Whether a text is the address of a daemon or a gateway: a URL, or HOST:PORT if no file has that name."""
    return bool(_ADDRESS.fullmatch(text)) and not Path(text).exists()


def recording_or_address(text: str) -> Path | str:
    """A word as the address of a daemon, else as a file."""
    return text if is_address(text) else Path(text)


def add_url_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare `--url`, described by `text`, and its value as a word."""
    parser.add_argument("address", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--url", metavar="URL", help=f"{text} A word without --url is the same.")


def read_url(arguments: argparse.Namespace) -> str | None:
    """The address that `--url` or a word gives.

    Raises:
        ConfigError: both are given.
    """
    if arguments.url and arguments.address:
        raise ConfigError(
            [f"{arguments.address}: not expected here, because --url gives the address; omit one of them"]
        )
    given: str | None = arguments.url or arguments.address
    return given


def await_daemon(url: str) -> str:
    """The URL, once its daemon listens or 15 s have passed; waiting is reported on standard error.

    Raises:
        DaemonError: the URL is invalid.
    """
    from ibpulse.client.connection import wait_for_daemon  # not for help texts

    wait_for_daemon(url, lambda text: print(f"ibpulse: {text}", file=sys.stderr, flush=True))
    return url


def add_recordings(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare the recordings to read, described by `text`: files or addresses of daemons."""
    parser.add_argument("files", type=recording_or_address, nargs="*", metavar="RECORDING", help=text)
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help=f"Daemon whose past, {LAST} or --last, is a further recording; repeatable.",
    )


def read_recordings(arguments: argparse.Namespace, faults: list[str]) -> list[Path | str]:
    """The files and addresses of `add_recordings`; errors are appended to `faults`."""
    found = [*arguments.files, *arguments.url]
    if not found:
        faults.append("no recording is given; name a file, or the address of a daemon with --url")
    if any(isinstance(each, str) for each in found) and (arguments.begin or arguments.end):
        faults.append("flag --from: a daemon's recent past is chosen with --last; use that, or record it first")
    return found


def source_path(source: Path | str) -> Path:
    """The path that names a recording: that of its file, or host, port and path of an address, without its password."""
    if isinstance(source, Path):
        return source
    parts = urlsplit(source if "://" in source else f"http://{source}")
    return Path(parts.netloc.rpartition("@")[2] + parts.path.rstrip("/"))


def load_source(source: Path | str, options: ReportOptions, last_ns: int) -> tuple[Recording, Outside]:
    """The part of a file that the options select, or the last `last_ns` (default: 60 s) of a daemon.

    Raises:
        IbpulseError: the file cannot be read, or the daemon does not answer.
    """
    if isinstance(source, Path):
        from ibpulse.reports.span import load_part  # not for help texts

        return load_part(source, options, last_ns)
    from ibpulse.recordings.from_daemon import fetch_recent

    return fetch_recent(await_daemon(source), last_ns or parse_duration(LAST)), (0, 0)


def add_window_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the part of recordings to use: `--last`, `--from`, `--to`, `--trim` and `--port`."""
    parser.add_argument(
        "--last",
        type=SOME_TIME,
        help="Use only this much of the end of each recording; not with --from or --to.",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        type=MOMENT,
        help="Start at this offset into each recording (10s) or at this wall-clock time (2026-11-21T12:00:00Z).",
    )
    parser.add_argument("--to", dest="end", type=MOMENT, help="End at this offset or wall-clock time, like --from.")
    parser.set_defaults(exclusive=(("--last", "--from"), ("--last", "--to")))
    add_trim_argument(parser)
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="PORT",
        help="Port or device to show, such as mlx5_0:1; repeatable (default: the rails).",
    )


def add_against_arguments(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare `--against` and its daemon `--url`, and `--last`."""
    parser.add_argument("--against", type=recording_or_address, metavar="RECORDING", help=text)
    parser.add_argument(
        "--url", metavar="URL", help=f"Compare with the recent past of a daemon, such as {URL_EXAMPLE}."
    )
    parser.add_argument(
        "--last",
        type=SOME_TIME,
        help=f"Compare with this much of its end (default: all; {LAST} of a daemon).",
    )


def load_against(arguments: argparse.Namespace, options: ReportOptions) -> tuple[Path, Recording, Outside] | None:
    """The recording of `--against`, or the last seconds of the daemon at `--url`, as `load_source`; None without them.

    Raises:
        ConfigError: both are given.
        IbpulseError: the file cannot be read, or the daemon does not answer.
    """
    if isinstance(arguments.against, str):
        raise ConfigError(f"flag --against: {arguments.against!r} is an address; use --url={arguments.against}")
    if arguments.against and arguments.url:
        raise ConfigError("flag --against: cannot be combined with --url; use one of them")
    source: Path | str | None = arguments.against or arguments.url
    return (source_path(source), *load_source(source, options, arguments.last or 0)) if source else None


def add_output_arguments(parser: argparse.ArgumentParser, text: str, *, required: bool) -> None:
    """Declare the file to write, described by `text`, `--force`, and the names to show: `--title`."""
    parser.add_argument("-o", "--output", type=Path, required=required, metavar="OUT", help=text)
    add_force_argument(parser, "OUT")
    parser.add_argument(
        "--title",
        action="append",
        default=[],
        metavar="TEXT",
        help="Name to show for a recording; repeatable, in the order of the files (default: the names of the files).",
    )


def add_force_argument(parser: argparse.ArgumentParser, file: str) -> None:
    """Declare `--force` for the file with this placeholder."""
    parser.add_argument("--force", action="store_true", help=f"Replace {file} if it exists.")


def add_trim_argument(parser: argparse.ArgumentParser) -> None:
    """Declare `--trim`."""
    parser.add_argument(
        "--trim", action="store_true", help="Cut the silence before the first active sample and after the last."
    )


def check_output(arguments: argparse.Namespace, faults: list[str]) -> None:
    """Check that the output may be written, and that there are not more titles than files.

    Errors are appended to `faults`.
    """
    output, files = arguments.output, len(arguments.files) + len(arguments.url)
    if output is not None and not arguments.force and output.exists():
        faults.append(f"output {output} exists; use --force to replace it, or name another file")
    if len(arguments.title) > files:
        faults.append(f"flag --title: {len(arguments.title)} titles for {files} recordings; give at most one for each")
