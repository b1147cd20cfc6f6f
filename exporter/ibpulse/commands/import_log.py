"""`ibpulse import FILE -o OUT`: converts another program's counter log into a recording."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import SOME_RATE, SOME_TIME
from ibpulse.errors import RecordingError
from ibpulse.text import escape_controls
from ibpulse.units import AMOUNT_UNITS, RATE_UNITS, format_duration

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.recordings import Recording

TIME_UNITS = ("s", "ms", "us", "ns")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files, the columns, and the sampling interval."""
    parser.add_argument("file", type=Path, metavar="FILE", help="Log to convert: CSV, optionally gzipped, or Parquet.")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="Recording to write.")
    parser.add_argument(
        "--time", required=True, metavar="COLUMN", help="Column with timestamps: numbers or text, in UTC."
    )
    parser.add_argument(
        "--time-unit",
        choices=TIME_UNITS,
        help="Unit of numeric timestamps: s, ms, us or ns (default: guessed from their magnitude).",
    )
    parser.add_argument("--port", metavar="COLUMN", help="Column with the port name, for a log with one row per port.")
    parser.add_argument(
        "--transmit",
        metavar="COLUMN",
        help="Column with the transmitted amount; for a log with one column per port, a pattern such as '{port}_tx'.",
    )
    parser.add_argument(
        "--receive", metavar="COLUMN", help="Column with the received amount, or a pattern like that of --transmit."
    )
    parser.add_argument(
        "--unit",
        choices=(*AMOUNT_UNITS, *RATE_UNITS),
        default="bytes",
        metavar="UNIT",
        help=f"Unit of counters: {', '.join(AMOUNT_UNITS)}; of rates: {', '.join(RATE_UNITS)} (default: bytes).",
    )
    parser.add_argument(
        "--since-before", action="store_true", help="Values are amounts since the previous row, not running counters."
    )
    parser.add_argument(
        "--interval",
        type=SOME_TIME,
        help="Sampling interval of the recording (default: close to the spacing of the log's rows).",
    )
    parser.add_argument(
        "--longest-gap",
        type=SOME_TIME,
        help="Longest gap between rows to fill; longer gaps become missing data (default: 5 times the usual spacing).",
    )
    parser.add_argument("--line-rate", type=SOME_RATE, help="Line rate of each port, one direction, such as 50GB/s.")
    parser.add_argument("--host", metavar="NAME", help="Node name to store in the recording.")


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Write the recording and print a summary of it.

    Raises:
        RecordingError: the log cannot be read, or the recording cannot be written.
    """
    from ibpulse.recordings import save  # not for help texts
    from ibpulse.recordings.counter_log import LogColumns, read_log
    from ibpulse.recordings.resampling import GridOptions, resample

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
    print(escape_controls(f"{arguments.output}: {_describe(recording)}"))
    return 0


def _describe(recording: Recording) -> str:
    import numpy as np  # not for help texts

    ways = ~np.isnan(recording.bytes_per_second).all(axis=(0, 2))
    holes = np.isnan(recording.bytes_per_second[:, ways]).mean() if ways.any() else 1.0
    ports = len(recording.meta.ports)
    interval = format_duration(recording.meta.interval_ns)
    what = f"{ports} port" if ports == 1 else f"{ports} ports"
    return f"{what}, {recording.ticks} samples of {interval}, {100 * holes:.1f} % missing"
