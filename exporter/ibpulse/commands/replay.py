"""`ibpulse replay FILE DIR`: replays a recording as a sysfs tree for a daemon to read."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.defaults import SAMPLING_INTERVAL_NS
from ibpulse.errors import ConfigError
from ibpulse.model import ROLES
from ibpulse.text import escape_controls
from ibpulse.units import SECOND_NS, format_duration, parse_duration

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.recordings import RecordingMeta

LEAST_SPEED, MOST_SPEED = 0.01, 1000.0
LEAST_INTERVAL_NS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the recording, the directory, and the playback options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="Recording or capture to replay.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="New or empty directory, preferably on tmpfs.")
    parser.add_argument("--speed", type=float, default=1.0, metavar="FACTOR", help="Replay speed (default: 1.0).")
    parser.add_argument("--loop", action="store_true", help="Start over at the end of the recording, until Ctrl-C.")
    parser.add_argument(
        "--delay",
        default="0s",
        metavar="DURATION",
        help="Time to hold the counters still before the first sample (default: 0s).",
    )
    parser.add_argument(
        "--interval",
        metavar="DURATION",
        help="Time between two values of a counter; use the sampler's interval (default: that of the recording).",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Replay until the end of the recording, or SIGINT or SIGTERM.

    Raises:
        ConfigError: a value is invalid.
        RecordingError: the file cannot be read.
        FabricError: the directory is not empty.
    """
    from ibpulse.commands.logs import set_up_log  # not for help texts
    from ibpulse.commands.simulate import stop_on_signals
    from ibpulse.recordings import read_meta, scan
    from ibpulse.simulate.replayed_tree import Player, Replay

    set_up_log(settings.log.level, settings.log.format)
    path: Path = arguments.file
    delay_ns = read_delay(arguments)
    meta = read_meta(path)
    interval_ns = choose_interval(arguments.interval, meta)
    ticks_per_step = arguments.speed * interval_ns / meta.interval_ns
    player = Player(lambda: scan(path), len(meta.ports), ticks_per_step, arguments.loop)
    try:
        replay = Replay(arguments.directory, meta, player, interval_ns, time.time_ns() + delay_ns, arguments.speed)
        replay.build()
        print(escape_controls(describe(path, meta, arguments, interval_ns), keep="\n"), flush=True)
        try:
            replay.run(stop_on_signals())
        finally:
            replay.close()
    finally:
        player.close()
    print("end of the recording; the counters no longer change" if player.over else "stopped")
    return 0


def read_delay(arguments: argparse.Namespace) -> int:
    """Nanoseconds before the first sample.

    Raises:
        ConfigError: the delay is invalid, or the speed is out of bounds.
    """
    faults = []
    if not LEAST_SPEED <= arguments.speed <= MOST_SPEED:
        faults.append(f"flag --speed: {arguments.speed:g} is out of bounds; give {LEAST_SPEED:g} to {MOST_SPEED:g}")
    try:
        delay_ns = parse_duration(arguments.delay)
    except ValueError as error:
        faults.append(f"flag --delay: {error}")
    if faults:
        raise ConfigError(faults)
    return delay_ns


def choose_interval(text: str | None, meta: RecordingMeta) -> int:
    """Nanoseconds between two values of a counter: from the flag, else the recording, else 10 ms.

    Raises:
        ConfigError: the sampler does not support that interval.
    """
    if text is None:
        return meta.interval_ns if _is_sampled(meta.interval_ns) else SAMPLING_INTERVAL_NS
    try:
        interval_ns = parse_duration(text)
    except ValueError as error:
        raise ConfigError([f"flag --interval: {error}"]) from error
    if not _is_sampled(interval_ns):
        raise ConfigError(
            [f"flag --interval: {text!r} is not a sampling interval; give 1ms to 1s, dividing one second"]
        )
    return interval_ns


def _is_sampled(interval_ns: int) -> bool:
    return interval_ns >= LEAST_INTERVAL_NS and SECOND_NS % interval_ns == 0 and not interval_ns % LEAST_INTERVAL_NS


def describe(path: Path, meta: RecordingMeta, arguments: argparse.Namespace, interval_ns: int) -> str:
    """The message at the start, with the daemon's command; it has the roles if the daemon would decide otherwise."""
    from ibpulse.sysfs.inventory import Inventory

    directory = arguments.directory
    flags = [f"--path.sysfs={directory}", f"--sampler.interval={format_duration(interval_ns)}"]
    found = {port.id: port.role for port in Inventory(directory).scan().ports}
    if found != {port.id: port.role for port in meta.ports}:
        flags.append(f"--ports.roles={','.join(_name_by_role(meta))}")
    host = escape_controls(meta.host) or "an unnamed node"
    what = f"{len(meta.ports)} ports, at {arguments.speed:g}x speed, in {directory}"
    return f"{path} of {host}: {what}\nread it with: ibpulse serve {' '.join(flags)}"


def _name_by_role(meta: RecordingMeta) -> Iterator[str]:
    """The recorded ports of each role, as `ports.roles` takes them."""
    for role in ROLES:
        ports = [str(port.id) for port in meta.ports if port.role == role]
        if ports:
            yield f"{role}={','.join(ports)}"
