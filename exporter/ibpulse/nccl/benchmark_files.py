"""Picks the reader that fits a benchmark's file, by its first character and the keys of its first object."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ibpulse.nccl.bounded_files import read_beginning, read_document, refuse
from ibpulse.nccl.inspector_log import read_inspector
from ibpulse.nccl.measurement import BenchmarkRun
from ibpulse.nccl.nccl_tests_json import read_json
from ibpulse.nccl.nccl_tests_text import read_text
from ibpulse.nccl.perftest_json import read_perftest

# a key at the beginning of a line or of an object
_PERFTEST = re.compile(r'\A\s*\{\s*"test_info"\s*:')
_INSPECTOR = re.compile(r'\A\s*\{\s*"(?:header|metadata|coll_perf|p2p_perf|dump_stats)"\s*:')


def read_benchmark(path: Path, unit: str = "", collective: str = "") -> BenchmarkRun:
    """The results in a file of any known format.

    `unit` is that of a file of perftest, `collective` that of a file that does not name its own; empty if not given.

    Raises:
        BenchmarkError: the file cannot be read, or no format fits.
    """
    run = _read(path, unit)
    if not collective:
        return run
    rows = tuple(replace(row, collective=row.collective or collective) for row in run.measurements)
    return replace(run, measurements=rows)


def _read(path: Path, unit: str) -> BenchmarkRun:
    begin = read_beginning(path)
    if not begin:
        refuse(path, "is empty", "run the benchmark again")
    if _INSPECTOR.match(begin):
        return read_inspector(path)
    if not begin.startswith("{"):
        return read_text(path)
    text = read_document(path)
    return read_perftest(path, text, unit) if _PERFTEST.match(text) else read_json(path, text)
