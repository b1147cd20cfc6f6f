"""The recordings that arguments name: files, or the recent past of daemons; and the file to write."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ibpulse.base.errors import ConfigError
from ibpulse.base.units import parse_duration
from ibpulse.commands.options import LAST
from ibpulse.core.client import wait_for_daemon
from ibpulse.core.recordings import Recording
from ibpulse.workbench import recorder
from ibpulse.workbench.reports.span import Outside, ReportOptions, load_part


def await_daemon(url: str) -> str:
    """The URL, once its daemon listens or 15 s have passed; waiting is reported on standard error.

    Raises:
        DaemonError: the URL is invalid.
    """
    wait_for_daemon(url, lambda text: print(f"ibpulse: {text}", file=sys.stderr, flush=True))
    return url


def read_recordings(arguments: argparse.Namespace, faults: list[str]) -> list[Path | str]:
    """The files and addresses that are given; errors are appended to `faults`."""
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
        return load_part(source, options, last_ns)
    return recorder.fetch_recent(await_daemon(source), last_ns or parse_duration(LAST)), (0, 0)


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


def check_output(arguments: argparse.Namespace, faults: list[str]) -> None:
    """Check that the output may be written, and that there are not more titles than files.

    Errors are appended to `faults`.
    """
    output, files = arguments.output, len(arguments.files) + len(arguments.url)
    if output is not None and not arguments.force and output.exists():
        faults.append(f"output {output} exists; use --force to replace it, or name another file")
    if len(arguments.title) > files:
        faults.append(f"flag --title: {len(arguments.title)} titles for {files} recordings; give at most one for each")
