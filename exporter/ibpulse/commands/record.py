"""`ibpulse record FILE` and `ibpulse import FILE -o OUT`: write recordings."""

from __future__ import annotations

import argparse
import asyncio

from ibpulse.agent.config import Settings
from ibpulse.base.errors import RecordingError
from ibpulse.base.text import escape_controls
from ibpulse.commands.compare import await_daemon
from ibpulse.commands.options import read_url
from ibpulse.core.recordings import save
from ibpulse.workbench import recorder
from ibpulse.workbench.recorder.counter_log import GridOptions, LogColumns, describe_import, read_log, resample
from ibpulse.workbench.recorder.session import RecorderOptions, record, refuse_existing


def run_import(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write the recording and print a summary of it."""
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


def run_record(arguments: argparse.Namespace, settings: Settings) -> int:
    """Record until the limit is reached, or SIGINT or SIGTERM; the file is complete in every case."""
    options = RecorderOptions(arguments.duration, arguments.until_idle, settings.analysis.active_threshold)
    refuse_existing(arguments.file, arguments.force)
    url = read_url(arguments)
    opening = recorder.daemon_source(await_daemon(url)) if url else recorder.node_source(settings)
    print(escape_controls(asyncio.run(record(arguments.file, opening, options, arguments.trim))))
    return 0
