"""Reads the small tiers of a dataset with DuckDB, for reports and pictures. No extension is downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.base import limits
from ibpulse.base.errors import DatasetError
from ibpulse.base.installation import how_to_install
from ibpulse.base.text import names_text, natural_key, size_text, split_lines
from ibpulse.core.arrays import Bools, Counts, Floats, Singles
from ibpulse.core.statistics.lateness import ClockOffset
from ibpulse.workbench.fleet.dataset import (
    FILES,
    MISSING,
    NODE_SUMS,
    PLACES,
    RAIL_SECONDS,
    RATES,
    STEPS,
    DatasetStore,
    Part,
    check_rows,
)

SETTINGS: Mapping[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "memory_limit": "128MB",
    "threads": 2,
    "preserve_insertion_order": False,
}
MAX_STEPS = 3_000_000
# of a row of the result with its copies: numbers, and texts as objects of Python
ROW_BYTES = {NODE_SUMS: 60, RAIL_SECONDS: 200, STEPS: 500, FILES: 1000, MISSING: 1000}
_WORDS = ("ports", "owner", "stage")

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class DatasetChoice:
    """A part of a dataset: a job by its id, empty for all, and a span of the collector's clock in ns."""

    job: str = ""
    begin_ns: int | None = None
    end_ns: int | None = None

    @property
    def text(self) -> str:
        """The choice in words."""
        return f"job {self.job}" if self.job else "all jobs"

    def condition(self, begin: str, end: str, ahead_ns: int = 0) -> str:
        """The SQL condition that a row is within the span: its first and last time, by a clock that is ahead."""
        first = [] if self.begin_ns is None else [f"{end} >= {self.begin_ns + ahead_ns}"]
        last = [] if self.end_ns is None else [f"{begin} < {self.end_ns + ahead_ns}"]
        return " AND ".join([*first, *last]) or "true"


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node of a dataset: its complete parts, its labels and its clock; None where a value is unknown.

    `resolution_ns` is the longest time between two changes of the counters of a rail.
    """

    name: str
    parts: tuple[Part, ...]
    interval_ns: int
    resolution_ns: int
    line_rate: float | None
    simulated: bool
    clock: ClockOffset | None
    synchronised: bool | None
    labels: Mapping[str, str]

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs of its parts."""
        return tuple(dict.fromkeys(part.job for part in self.parts if part.job))

    @property
    def offset_ns(self) -> int:
        """The lead of its clock, 0 if unknown."""
        return self.clock.offset_ns if self.clock else 0

    @property
    def bound_ns(self) -> int | None:
        """The largest possible error of that, None if unknown."""
        return self.clock.uncertainty_ns if self.clock else None

    @property
    def coarse(self) -> bool:
        """Whether its counters change so rarely that its edges cannot be compared with those of others."""
        return self.resolution_ns > self.interval_ns


@dataclass(frozen=True, slots=True)
class GroupSteps:
    """The steps of a group of ports of a node in order of time; `columns` are those of the tier, NaN if unknown.

    Times are in ns after the origin of the source, by the clock of the node.
    """

    node: str
    ports: tuple[str, ...]
    owner: str
    stage: str
    columns: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.columns["step"])


@dataclass(frozen=True, slots=True)
class NodeSums:
    """Sums over the rails of a node: `rates` (2, samples), NaN for missing; the first sample ends at `start_ns`.

    `partial` (samples,) marks sums without all rails.
    """

    start_ns: int
    rates: Singles
    partial: Bools


class ReportSource:
    """The chosen part of a dataset in a directory.

    `origin_ns` and `end_ns` are the begin of its first part and the end of its last one. Every method raises
    DatasetError if the dataset cannot be read, or not with the memory that can be spared.
    """

    def __init__(self, path: Path, choice: DatasetChoice) -> None:
        try:
            import duckdb
        except ImportError as error:
            reason = f"reports of datasets need duckdb, which is not installed; {how_to_install('duckdb')}"
            raise DatasetError(reason) from error
        self.path, self.choice, self._store = path, choice, DatasetStore(str(path))
        self._store.check()
        self._errors: type[Exception] = duckdb.Error
        self._database = duckdb.connect(config=dict(SETTINGS))
        columns = "start_ns, end_ns, interval_ns, resolution_ns, line_rate_bytes_per_second, simulated, "
        columns += "clock_offset_ns, clock_bound_ns, clock_synchronised, " + ", ".join(PLACES)
        rows = self._rows(FILES, columns, choice.condition("start_ns", "end_ns - 1"))
        by_node: dict[str, list[tuple[Part, dict[str, Any]]]] = {}
        for part, row in sorted(rows, key=lambda one: (natural_key(one[0].node), one[1]["start_ns"])):
            by_node.setdefault(part.node, []).append((part, row))
        self.nodes = {name: _make_node(name, of_node) for name, of_node in by_node.items()}
        if not rows:
            jobs = sorted({part.job for part in self._store.parts(FILES) if part.job}, key=natural_key)
            if choice.job and choice.job not in jobs:
                had = f"the jobs {names_text(jobs)}" if jobs else "parts of no job"
                raise DatasetError(f"{path} has no job {choice.job!r}; it has {had}")
            raise DatasetError(f"{path} has no complete part of {choice.text} in this span; choose another one")
        self.origin_ns: int = min(row["start_ns"] for _, row in rows)
        self.end_ns: int = max(row["end_ns"] for _, row in rows)

    def close(self) -> None:
        """Release the memory of the database."""
        self._database.close()

    def steps(self) -> list[GroupSteps]:
        """The steps of all groups of ports."""
        words = ", ".join(f"coalesce({name}::VARCHAR, '') AS {name}" for name in _WORDS)
        numbers = {name: name for name in ("step", "transmit_bytes", "receive_bytes", "silent_ratio", "missing_ratio")}
        numbers["length"] = "end_ns - begin_ns"
        for name in ("begin", "transmit_first", "receive_first"):
            numbers[name] = f"{name}_ns - {self.origin_ns}"
            numbers |= {f"{name}_bound": f"{name}_bound_ns", f"{name}_resolved": f"{name}_resolved"}
        columns = ", ".join(f"coalesce(({value})::DOUBLE, 'nan') AS {name}" for name, value in numbers.items())
        groups: list[GroupSteps] = []
        for node in self.nodes.values():
            found = self._select(STEPS, node, f"{words}, {columns}", "begin_ns", 'begin_ns, "group"')
            keys = list(zip(*(found.pop(name) for name in _WORDS), strict=True))
            if len(keys) + sum(map(len, groups)) > MAX_STEPS:
                raise DatasetError(f"{self.path} has more than {MAX_STEPS} steps in this span; choose a shorter one")
            rows: dict[tuple[str, ...], list[int]] = {}
            for row, key in enumerate(keys):
                rows.setdefault(key, []).append(row)
            for (ports, owner, stage), mine in rows.items():
                of_group = {name: values[mine] for name, values in found.items()}
                groups.append(GroupSteps(node.name, tuple(ports.split(",")), owner, stage, of_group))
        return groups

    def samples(self, name: str) -> NodeSums | None:
        """The sums of a node on a regular grid; None if it has none."""
        node = self.nodes[name]
        rates = ", ".join(f"coalesce({rate}, 'nan') AS {rate}" for rate in RATES)
        partial = "rails_observed BETWEEN 1 AND rails - 1 AS partial"
        found = self._select(NODE_SUMS, node, f"time_ns, {rates}, {partial}", "time_ns")
        times = found["time_ns"]
        if not len(times):
            return None
        places = (times - times[0]) // node.interval_ns
        size = int(places[-1]) + 1
        # there may be hours between two parts
        self._check_memory(size * ROW_BYTES[NODE_SUMS])
        sums = NodeSums(int(times[0]), np.full((2, size), np.nan, dtype=np.float32), np.zeros(size, dtype=np.bool_))
        sums.rates[:, places] = [found[rate] for rate in RATES]
        sums.partial[places] = found["partial"]
        return sums

    def means(self, name: str, begin: float, seconds: float, columns: int) -> Floats:
        """Mean sums of a node in columns of `seconds` from `begin` on, in seconds after the origin; NaN if unknown.

        A sample is in the column of its middle, by the clock of the collector.
        """
        node, found = self.nodes[name], np.full(columns, np.nan)
        query = f"""
            WITH samples AS (
                SELECT
                    ((time_ns - {self.origin_ns + node.offset_ns})::DOUBLE - {node.interval_ns} / 2) / 1e9 AS time,
                    {RATES[0]}::DOUBLE + {RATES[1]}::DOUBLE AS rate
                FROM FILES WHERE {self.choice.condition("time_ns", "time_ns", node.offset_ns)}
            )
            SELECT floor((time - $begin) / $seconds) AS place, avg(rate) AS mean
            FROM samples WHERE rate IS NOT NULL GROUP BY place HAVING place BETWEEN 0 AND {columns - 1}
        """
        with self._run(NODE_SUMS, self._paths(NODE_SUMS, node.parts), query, begin=begin, seconds=seconds) as result:
            means = result.fetchnumpy()
        found[means["place"].astype(np.intp)] = means["mean"]
        return found

    def rail_seconds(self, name: str) -> tuple[list[str], Counts, Floats]:
        """The rails of a node, the begins of seconds by its clock, and their mean rates: (2, seconds, rails)."""
        rates = ", ".join(f"coalesce({rate}::DOUBLE, 'nan') AS {rate}" for rate in RATES)
        found = self._select(RAIL_SECONDS, self.nodes[name], f"time_ns, port::VARCHAR AS port, {rates}", "time_ns")
        ports = sorted(set(found["port"]), key=natural_key)
        seconds, row = np.unique(found["time_ns"], return_inverse=True)
        grid = np.full((2, len(seconds), len(ports)), np.nan)
        grid[:, row, [ports.index(port) for port in found["port"]]] = [found[rate] for rate in RATES]
        return ports, seconds, grid

    def missing(self) -> list[tuple[str, int, int, str]]:
        """Spans that were not collected: node, from, to, reason."""
        rows = self._rows(MISSING, "from_ns, to_ns, reason", self.choice.condition("from_ns", "to_ns - 1"))
        return [(part.node, *row.values()) for part, row in rows]

    def _paths(self, tier: str, parts: Iterable[Part]) -> list[str]:
        return [str(self.path / part.path(tier)) for part in parts]

    def _rows(self, tier: str, columns: str, condition: str) -> list[tuple[Part, dict[str, Any]]]:
        """Rows of all parts of the chosen job, in order of their paths and then of the first column."""
        chosen = [part for part in self._store.parts(tier) if self.choice.job in ("", part.job)]
        parts = dict(zip(self._paths(tier, chosen), chosen, strict=True))
        if not parts:
            return []
        query = f"SELECT filename, {columns} FROM FILES WHERE {condition} ORDER BY ALL"
        with self._run(tier, list(parts), query) as result:
            found = result.fetchall()
        order, names = {path: place for place, path in enumerate(parts)}, columns.split(", ")
        found.sort(key=lambda row: order[row[0]])
        return [(parts[path], dict(zip(names, row, strict=True))) for path, *row in found]

    def _select(self, tier: str, node: FleetNode, columns: str, time: str, order: str = "") -> Columns:
        """Columns of a tier of a node in order of time, without nulls."""
        condition = self.choice.condition(time, time, node.offset_ns)
        query = f"SELECT {columns} FROM FILES WHERE {time} IS NOT NULL AND {condition} ORDER BY {order or time}"
        with self._run(tier, self._paths(tier, node.parts), query) as result:
            return dict(result.fetchnumpy())

    @contextmanager
    def _run(self, tier: str, files: Sequence[str], query: str, **parameters: float) -> Iterator[Any]:
        """The result of a query about FILES, after a check of the rows that the files have by their footers."""
        try:
            counted = "SELECT max(num_rows), sum(num_rows) FROM parquet_file_metadata($files)"
            most, total = self._database.execute(counted, {"files": files}).fetchall()[0]
            check_rows(self.path, tier, int(most))
            self._check_memory(int(total) * ROW_BYTES[tier])
            # the keys of the paths are known; all files have one schema; union_by_name takes 50 kB for each
            table = "read_parquet($files, hive_partitioning = false, filename = true)"
            yield self._database.execute(query.replace("FILES", table), {"files": files, **parameters})
        except self._errors as error:
            raise DatasetError(f"{self.path} cannot be read: {split_lines(str(error))[0]}") from error

    def _check_memory(self, need_bytes: int) -> None:
        spare_bytes = limits.spare_bytes()
        if need_bytes > spare_bytes:
            raise DatasetError(
                f"{self.path} takes {size_text(need_bytes)} of memory at once, more than the "
                f"{size_text(spare_bytes)} that can be spared; choose a shorter span"
            )


def _make_node(name: str, rows: Sequence[tuple[Part, Mapping[str, Any]]]) -> FleetNode:
    """A node from its parts in order of time; the last one counts."""
    last = rows[-1][1]
    known = last["clock_offset_ns"] is not None and last["clock_bound_ns"] is not None
    return FleetNode(
        name,
        tuple(part for part, _ in rows),
        last["interval_ns"],
        max(row["resolution_ns"] for _, row in rows),
        last["line_rate_bytes_per_second"],
        any(row["simulated"] for _, row in rows),
        ClockOffset(last["clock_offset_ns"], last["clock_bound_ns"]) if known else None,
        last["clock_synchronised"],
        {label: last[label] for label in PLACES if last[label]},
    )
