"""`ibpulse replay FILE DIR`: replays a recording as a sysfs tree for a daemon to read."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import TIME, number
from ibpulse.config.setting_types import INTERVAL
from ibpulse.defaults import SAMPLING_INTERVAL_NS
from ibpulse.model import ROLES
from ibpulse.text import escape_controls
from ibpulse.units import GRID_NS, format_duration

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.recordings import RecordingMeta


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the recording, the directory, and the playback options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="Recording or capture to replay.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="New or empty directory, preferably on tmpfs.")
    parser.add_argument(
        "--speed",
        type=number(0.01, 1000, "FACTOR", "0.5"),
        default=1.0,
        help="Replay speed (default: 1.0).",
    )
    parser.add_argument("--loop", action="store_true", help="Start over at the end of the recording, until Ctrl-C.")
    parser.add_argument(
        "--delay",
        type=TIME,
        default="0s",
        help="Time to hold the counters still before the first sample (default: 0s).",
    )
    parser.add_argument(
        "--interval",
        type=INTERVAL,
        help="Time between two values of a counter; use the sampler's interval (default: that of the recording).",
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Replay until the end of the recording, or SIGINT or SIGTERM.

    Raises:
        RecordingError: the file cannot be read.
        FabricError: the directory is not empty.
    """
    from ibpulse.commands.logs import set_up_log  # not for help texts
    from ibpulse.commands.simulate import stop_on_signals
    from ibpulse.recordings import read_meta, scan
    from ibpulse.simulate.replayed_tree import Player, Replay

    set_up_log(settings.log.level, settings.log.format)
    path: Path = arguments.file
    meta = read_meta(path)
    interval_ns = arguments.interval or (meta.interval_ns if meta.interval_ns in GRID_NS else SAMPLING_INTERVAL_NS)
    ticks_per_step = arguments.speed * interval_ns / meta.interval_ns
    player = Player(lambda: scan(path), len(meta.ports), ticks_per_step, arguments.loop)
    try:
        replay = Replay(
            arguments.directory, meta, player, interval_ns, time.time_ns() + arguments.delay, arguments.speed
        )
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
