"""Picks the reader that fits a benchmark's file, by its first characters and the keys of its first object."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ibpulse.workbench.nccl.bounded_files import EMPTY_ADVICE, read_beginning, read_document, refuse
from ibpulse.workbench.nccl.inspector_log import read_inspector
from ibpulse.workbench.nccl.measurement import BenchmarkRun
from ibpulse.workbench.nccl.nccl_tests_json import read_json
from ibpulse.workbench.nccl.nccl_tests_text import read_text
from ibpulse.workbench.nccl.perftest import read_perftest, read_perftest_text
from ibpulse.workbench.nccl.rccl_results import read_rccl_csv, read_rccl_json

FORMATS = "output or JSON of nccl-tests, rccl-tests or perftest, CSV of rccl-tests, log of NCCL Inspector"
# a key at the beginning of a line or of an object, which some versions of perftest do not quote
_PERFTEST = re.compile(r'\A\s*\{\s*"?test_info"?\s*:')
_INSPECTOR = re.compile(r'\A\s*\{\s*"(?:header|metadata|coll_perf|p2p_perf|dump_stats)"\s*:')
_RCCL_JSON = re.compile(r'\A\s*(?:\[\s*)?\{[^{}\[\]]*"(?:busBw|algBw)"\s*:')
_RCCL_CSV = re.compile(r"\A(?:numCycle|collective)\s*,.*\bbusbw\b", re.IGNORECASE)
_OTHERS = {
    "OSU Micro-Benchmarks": re.compile(r"# OSU (?:MPI|NCCL|RCCL|OpenSHMEM|XCCL)"),
    "Intel MPI Benchmarks": re.compile(r"Intel\(R\) MPI Benchmarks"),
    "UCX's ucx_perftest": re.compile(r"\|\s*Stage\s*\|\s*# iterations\s*\||ucx_perftest"),
    "nvbandwidth": re.compile(r"nvbandwidth Version"),
    "iperf": re.compile(r"iperf|\[ ID\] Interval"),
}
"""Programs whose output is named in the refusal, by what it begins with."""


def read_benchmark(path: Path, unit: str = "", collective: str = "") -> tuple[BenchmarkRun, ...]:
    """The runs in a file of any known format, at least one.

    `unit` is that of a JSON file of perftest, `collective` that of a file that does not name its own; empty if not
    given.

    Raises:
        BenchmarkError: the file cannot be read, or no format fits.
    """
    runs = _read(path, unit)
    if not collective:
        return runs
    return tuple(
        replace(
            run,
            measurements=tuple(replace(row, collective=row.collective or collective) for row in run.measurements),
        )
        for run in runs
    )


def _read(path: Path, unit: str) -> tuple[BenchmarkRun, ...]:
    begin = read_beginning(path)
    if not begin:
        refuse(path, "is empty", EMPTY_ADVICE)
    if _INSPECTOR.match(begin):
        return (read_inspector(path),)
    if _RCCL_JSON.match(begin):
        return (read_rccl_json(path, read_document(path)),)
    if _RCCL_CSV.match(begin):
        return (read_rccl_csv(path, read_document(path)),)
    if _PERFTEST.match(begin):
        return (read_perftest(path, read_document(path), unit),)
    if begin.startswith("{"):
        return (read_json(path, read_document(path)),)
    runs = read_text(path) or read_perftest_text(path)
    if not runs:
        other = next((name for name, sign in _OTHERS.items() if sign.search(begin)), "")
        refuse(path, f"is of {other}" if other else "has no row with results", f"the formats that are read: {FORMATS}")
    return runs
