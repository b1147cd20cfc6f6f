"""`ibpulse record FILE`: the samples of this node, or of a running daemon, as they come, into a file."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ibpulse.commands.arguments import add_trim_argument, read_amount
from ibpulse.errors import ConfigError, IbpulseError, RecordingError
from ibpulse.units import parse_duration

if TYPE_CHECKING:
    from ibpulse.commands.record_sources import SampleSource
    from ibpulse.config import Settings
    from ibpulse.recordings import RecordingWriter
    from ibpulse.recordings.session import Progress, Recorder, RecorderOptions

log = logging.getLogger(__name__)

# A kill loses what was not written yet, and the 0.2 s that are not certain yet.
WRITE_SECONDS = 0.5
LOG_SECONDS = 10.0
# pyarrow's own allocator keeps 10 MB more than the system's
ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
IDLE = "10s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, the source, and when it is enough."""
    parser.add_argument("file", type=Path, metavar="FILE", help="The recording to make, a Parquet file.")
    parser.add_argument("--duration", metavar="DURATION", help="How long, like 60s or 8h; until Ctrl-C without it.")
    parser.add_argument(
        "--until-idle",
        nargs="?",
        const=IDLE,
        metavar="DURATION",
        help=f"End when the rails, once active, were idle for this long; {IDLE} without a value.",
    )
    add_trim_argument(parser)
    parser.add_argument(
        "--from",
        dest="url",
        metavar="URL",
        help="Record what a running daemon samples, like http://node7:10055, in place of this node.",
    )
    parser.add_argument("--force", action="store_true", help="Replace FILE if it exists.")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record until it is enough, or until SIGINT or SIGTERM; the file is whole then.

    Raises:
        ConfigError: a duration is none.
        IbpulseError: nothing can be sampled, or the file cannot be written.
    """
    from ibpulse.commands.logs import set_up_log  # not for help texts
    from ibpulse.commands.record_sources import from_daemon, from_node

    set_up_log(settings.log.level, settings.log.format)
    # read when pyarrow is imported
    os.environ.update(ALLOCATOR)
    options = read_options(arguments, settings)
    refuse_existing(arguments.file, arguments.force)
    opening = from_daemon(arguments.url) if arguments.url else from_node(settings)
    print(asyncio.run(record(arguments.file, opening, options, arguments.trim)))
    return 0


def read_options(arguments: argparse.Namespace, settings: Settings) -> RecorderOptions:
    """When it is enough.

    Raises:
        ConfigError: a duration is none.
        RecordingError: pyarrow is missing.
    """
    faults: list[str] = []
    duration_ns = read_amount("--duration", arguments.duration, parse_duration, faults)
    until_idle_ns = read_amount("--until-idle", arguments.until_idle, parse_duration, faults)
    if faults:
        raise ConfigError(faults)
    from ibpulse.recordings.session import RecorderOptions  # needs pyarrow

    return RecorderOptions(duration_ns, until_idle_ns, settings.analysis.active_threshold)


def refuse_existing(path: Path, force: bool) -> None:
    """Nothing, unless the file is there, or what a killed recording left of it, and is not to be replaced.

    Raises:
        RecordingError: it is.
    """
    for there in _both(path):
        if there.exists() and not force:
            raise RecordingError(f"recording {there} exists already; name another file, or replace it with --force")


async def record(
    path: Path, opening: AbstractAsyncContextManager[SampleSource], options: RecorderOptions, trim: bool
) -> str:
    """Record into the file until it is enough or a signal asks for the end; the sentence that says what was recorded.

    Raises:
        IbpulseError: nothing can be sampled any more, or the file cannot be written.
    """
    from ibpulse.recordings import RecordingWriter
    from ibpulse.recordings.session import Recorder

    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    async with opening as source:
        _make_way(path)
        writer = RecordingWriter(path, source.meta)
        recorder = Recorder(writer, source.meta, options)
        try:
            await _follow(source, recorder, asked)
        except RecordingError:
            raise
        except IbpulseError as error:
            await asyncio.to_thread(writer.close)
            left = f"what was recorded until then is in {path}" if writer.ticks else "nothing was recorded"
            raise type(error)(f"{error}; {left}") from error
    return await asyncio.to_thread(finish, writer, recorder, trim)


async def _follow(source: SampleSource, recorder: Recorder, asked: asyncio.Event) -> None:
    shown = ProgressLine(sys.stderr)
    try:
        while not (asked.is_set() or recorder.done):
            try:
                await asyncio.wait_for(asked.wait(), WRITE_SECONDS)
            except TimeoutError:
                pass
            source.check()
            # the disk may be slow, and the supervisor must not wait for it
            await asyncio.to_thread(recorder.add, source.read())
            shown.show(recorder.progress())
    finally:
        shown.end()


def finish(writer: RecordingWriter, recorder: Recorder, trim: bool) -> str:
    """The sentence that says what was recorded, with the file whole, and without silence at its ends if `trim`.

    Raises:
        RecordingError: there is no sample, or the file cannot be written.
    """
    from ibpulse.recordings.session import say_end

    path, progress = writer.path, recorder.progress()
    first, last = 0, progress.ticks - 1
    if trim and recorder.active_ticks is None:
        log.warning("recording %s is never active, so nothing is cut off", path)
    elif trim and recorder.active_ticks is not None:
        first, last = recorder.active_ticks
    try:
        writer.close(first, last)
    except RecordingError as error:
        raise RecordingError(
            f"{error}; all of it is kept in {writer.partial}, and every command reads it as {path}"
        ) from error
    if not progress.ticks:
        raise RecordingError(f"recording {path} ended before its first sample, so nothing was written; record longer")
    cut_seconds = progress.seconds * (1 - (last - first + 1) / progress.ticks)
    return say_end(path, progress, path.stat().st_size, cut_seconds)


class ProgressLine:
    """The state of a recording: on a terminal one line that changes, elsewhere a line of the log now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._logged = time.monotonic()

    def show(self, progress: Progress) -> None:
        """Say how far it is."""
        from ibpulse.recordings.session import say_progress

        if self._live:
            # back to the first column, and clear to the end of the line
            self._stream.write(f"\r{say_progress(progress)}\x1b[K")
            self._stream.flush()
        elif time.monotonic() - self._logged >= LOG_SECONDS:
            self._logged = time.monotonic()
            log.info("recorded %s", say_progress(progress))

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            self._stream.write("\n")
            self._stream.flush()


def _both(path: Path) -> tuple[Path, Path]:
    """The file, and what it is called while it grows."""
    return path, path.with_name(f"{path.name}.partial")


def _make_way(path: Path) -> None:
    for there in _both(path):
        try:
            there.unlink(missing_ok=True)
        except OSError as error:
            raise RecordingError(
                f"recording {there} cannot be replaced: {error.strerror}; name another file"
            ) from error
