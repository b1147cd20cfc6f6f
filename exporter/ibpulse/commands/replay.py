"""`ibpulse replay FILE DIR`: a sysfs tree whose counters advance as they were recorded."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.text import escape_controls
from ibpulse.base.units import GRID_NS, format_duration
from ibpulse.commands.simulate import stop_on_signals
from ibpulse.core.defaults import SAMPLING_INTERVAL_NS
from ibpulse.core.model import ROLES
from ibpulse.core.recordings import RecordingMeta, read_meta, scan
from ibpulse.workbench.simulate.replay import Player, Replay


def run_replay(arguments: argparse.Namespace, settings: Settings) -> int:
    """Replay until the end of the recording, or SIGINT or SIGTERM."""
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
            replay.run(stop_on_signals().is_set)
        finally:
            replay.close()
    finally:
        player.close()
    print("end of the recording; the counters no longer change" if player.over else "stopped")
    return 0


def describe(path: Path, meta: RecordingMeta, arguments: argparse.Namespace, interval_ns: int) -> str:
    """The message at the start, with the daemon's command; it has the roles if the daemon would decide otherwise."""
    directory = arguments.directory
    flags = [f"--path.sysfs={directory}", f"--sampler.interval={format_duration(interval_ns)}"]
    found = {port.id: port.role for port in Inventory(directory).scan().ports}
    if found != {port.id: port.role for port in meta.ports}:
        named = {role: [str(port.id) for port in meta.ports if port.role == role] for role in ROLES}
        roles = [f"{role}={','.join(ports)}" for role, ports in named.items() if ports]
        flags.append(f"--ports.roles={','.join(roles)}")
    host = escape_controls(meta.host) or "an unnamed node"
    what = f"{len(meta.ports)} ports, at {arguments.speed:g}x speed, in {directory}"
    return f"{path} of {host}: {what}\nread it with: ibpulse serve {' '.join(flags)}"
