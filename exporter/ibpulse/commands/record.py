"""`ibpulse record FILE`: records the samples of this node or of a running daemon to a file."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from ibpulse.agent.config import Settings
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.errors import RecordingError
from ibpulse.base.text import escape_controls
from ibpulse.base.units import GRID_NS, format_duration
from ibpulse.commands.demo import stop_on_signals
from ibpulse.commands.logs import set_up_log
from ibpulse.commands.options import read_url
from ibpulse.commands.sources import await_daemon
from ibpulse.core.defaults import SAMPLING_INTERVAL_NS
from ibpulse.core.model import ROLES
from ibpulse.core.recordings import RecordingMeta, read_meta, save, scan
from ibpulse.workbench import recorder
from ibpulse.workbench.recorder.counter_log import LogColumns, read_log
from ibpulse.workbench.recorder.resampling import GridOptions, describe_import, resample
from ibpulse.workbench.recorder.session import RecorderOptions, record, refuse_existing
from ibpulse.workbench.simulate.replay import Player, Replay


def run_import(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write the recording and print a summary of it.

    Raises:
        RecordingError: the log cannot be read, or the recording cannot be written.
    """
    options = GridOptions(
        interval_ns=arguments.interval,
        longest_gap_ns=arguments.longest_gap,
        rate_bytes_per_second=arguments.line_rate,
        host=arguments.host or "",
        reason=arguments.file.name,
    )
    columns = LogColumns(
        time=arguments.time,
        transmit=arguments.transmit or "",
        receive=arguments.receive or "",
        port=arguments.port or "",
        unit=arguments.unit,
        since_before=arguments.since_before,
        time_unit=arguments.time_unit or "",
    )
    logs = read_log(arguments.file, columns)
    try:
        recording = resample(logs, columns, options)
    except ValueError as error:
        raise RecordingError(f"log {arguments.file} {error}") from error
    save(arguments.output, recording)
    print(escape_controls(f"{arguments.output}: {describe_import(recording)}"))
    return 0


def run_replay(arguments: argparse.Namespace, settings: Settings) -> int:
    """Replay until the end of the recording, or SIGINT or SIGTERM.

    Raises:
        RecordingError: the file cannot be read.
        FabricError: the directory is not empty.
    """
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


def run_record(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record until the limit is reached, or SIGINT or SIGTERM; the file is complete in every case.

    Raises:
        IbpulseError: nothing can be sampled, or the file cannot be written.
    """
    set_up_log(settings.log.level, settings.log.format)
    options = RecorderOptions(arguments.duration, arguments.until_idle, settings.analysis.active_threshold)
    refuse_existing(arguments.file, arguments.force)
    url = read_url(arguments)
    opening = recorder.daemon_source(await_daemon(url)) if url else recorder.node_source(settings)
    print(escape_controls(asyncio.run(record(arguments.file, opening, options, arguments.trim))))
    return 0
