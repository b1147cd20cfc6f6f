"""`ibpulse import FILE -o OUT`: converts another program's counter log into a recording."""

from __future__ import annotations

import argparse

from ibpulse.config import Settings
from ibpulse.errors import RecordingError
from ibpulse.recordings import save
from ibpulse.recordings.counter_log import LogColumns, read_log
from ibpulse.recordings.resampling import GridOptions, describe_import, resample
from ibpulse.text import escape_controls


def run(arguments: argparse.Namespace, settings: Settings) -> int:
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
