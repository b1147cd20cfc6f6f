"""Reads tables of expert loads from CSV: a row for each layer or time, a column for each expert."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ibpulse.base.errors import ConfigError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import escape_controls, show

MOST_BYTES = 16_000_000
MOST_CELLS = 2_000_000
LARGEST = 1e18
LAYER, TIMES = "layer", ("window", "step", "time", "iteration")
"""Columns that name a row instead of holding loads."""
EXAMPLE = "a row for each layer and a column for each expert, such as 90,132,40,61"


@dataclass(frozen=True, slots=True)
class LoadRow:
    """The loads of the experts of a layer, perhaps in one of several windows of time; `place` says where it is."""

    layer: str
    time: str
    loads: tuple[float, ...]
    place: str


def read_load_table(path: Path) -> tuple[LoadRow, ...]:
    """The rows of a table, all with the same number of experts.

    Raises:
        ConfigError: the file cannot be read, or is not such a table; names the first fault.
    """
    rows = _csv_rows(path)
    if not rows:
        _refuse(path, f"has no loads; write {EXAMPLE}")
    counts = {len(row.loads) for row in rows}
    if len(counts) > 1:
        odd = next(row for row in rows if len(row.loads) != len(rows[0].loads))
        raise ConfigError([f"{odd.place}: has {len(odd.loads)} loads, but the first row has {len(rows[0].loads)}"])
    return tuple(rows)


def _refuse(place: object, problem: str) -> NoReturn:
    raise ConfigError([f"{place}: {problem}"]) from None


def _row(place: str, layer: str, time: str, values: Iterable[str]) -> LoadRow:
    loads = tuple(_load(place, value) for value in values)
    if len(loads) < 2:
        _refuse(place, f"has {len(loads)} loads; give those of two or more experts")
    if not math.fsum(loads):
        _refuse(place, "has only loads of 0; leave the row out")
    return LoadRow(layer, time, loads, place)


def _load(place: str, text: str) -> float:
    """A finite load of 0 or more."""
    load = float(text) if _is_number(text) else math.nan
    if not 0 <= load <= LARGEST:
        _refuse(place, f"{escape_controls(show(text))} is not a load; give a number from 0 to {LARGEST:g}")
    return load


def _csv_rows(path: Path) -> list[LoadRow]:
    file = ForeignFile(path, ConfigError, access="check the path and its permissions")
    text = file.read_text(MOST_BYTES, "give fewer rows")
    try:
        lines = [(at, line) for at, line in enumerate(csv.reader(io.StringIO(text)), 1) if any(map(str.strip, line))]
    except csv.Error as error:
        _refuse(path, f"is not CSV: {error}; write {EXAMPLE}")
    cells = sum(len(line) for _, line in lines)
    if cells > MOST_CELLS:
        _refuse(path, f"has {cells} values, more than {MOST_CELLS}; give fewer rows")
    names: Sequence[str] = ()
    if lines and not _is_number(lines[0][1][-1]):
        names = [name.strip().lower() for name in lines.pop(0)[1]]
    rows = []
    for layer, (at, line) in enumerate(lines):
        if names and len(line) != len(names):
            _refuse(f"{path}:{at}", f"has {len(line)} columns, but the header has {len(names)}")
        rows.append(_named_row(f"{path}:{at}", str(layer), names or [""] * len(line), line))
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _named_row(place: str, layer: str, names: Sequence[str], values: Sequence[str]) -> LoadRow:
    """A row whose columns have names: those of a layer or a time name it, the others are loads."""
    time, loads = "", []
    for name, value in zip(names, values, strict=True):
        if name == LAYER:
            layer = value.strip()
        elif name in TIMES:
            time = value.strip()
        else:
            loads.append(value)
    return _row(place, layer, time, loads)
