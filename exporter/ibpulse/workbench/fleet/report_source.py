"""Reads the small tiers of a dataset with DuckDB, for reports and pictures. No extension is downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ibpulse.base import memory
from ibpulse.base.errors import DatasetError
from ibpulse.base.missing_packages import how_to_install
from ibpulse.base.text import names_text, natural_key, size_text, split_lines
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.statistics.clock_offsets import ClockOffset
from ibpulse.workbench.fleet.dataset_schema import FILES, MISSING, NODE_SUMS, RAIL_SECONDS, STEPS, Part, parse_path
from ibpulse.workbench.fleet.dataset_store import DatasetStore, check_rows

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
_FILE_COLUMNS = (
    *("start_ns", "end_ns", "interval_ns", "resolution_ns", "rails", "line_rate_bytes_per_second", "observed_ratio"),
    "simulated",
    *("clock_offset_ns", "clock_bound_ns", "clock_synchronised", "leaf", "rack", "rank", "stage"),
)
_EDGES = ("begin", "transmit_first", "receive_first")


@dataclass(frozen=True, slots=True)
class DatasetChoice:
    """Which part of a dataset: a job by its id, empty for all, and a span of the collector's clock in ns."""

    job: str = ""
    begin_ns: int | None = None
    end_ns: int | None = None

    @property
    def text(self) -> str:
        """The choice in words."""
        return f"job {self.job}" if self.job else "all jobs"


@dataclass(frozen=True, slots=True)
class NodePart:
    """One complete part of a node, and the row of it in the tier `files`."""

    part: Part
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node of a dataset: its parts in order of time, its labels and its clock; None where a value is unknown.

    `resolution_ns` is the longest time between two changes of the counters of a rail.
    """

    name: str
    parts: tuple[NodePart, ...]
    jobs: tuple[str, ...]
    interval_ns: int
    resolution_ns: int
    rails: int
    line_rate: float | None
    observed_ratio: float
    simulated: bool
    clock: ClockOffset | None
    synchronised: bool | None
    labels: Mapping[str, str]

    @property
    def offset_ns(self) -> int:
        """How far its clock is ahead, 0 if unknown."""
        return self.clock.offset_ns if self.clock else 0

    @property
    def coarse(self) -> bool:
        """Whether its counters change so rarely that its edges cannot be compared with those of others."""
        return self.resolution_ns > self.interval_ns

    @property
    def bound_ns(self) -> int | None:
        """By how much that may be wrong, None if unknown."""
        return self.clock.uncertainty_ns if self.clock else None


@dataclass(frozen=True, slots=True)
class GroupSteps:
    """The steps of a group of ports of a node in order of time; `columns` are those of the tier, NaN if unknown.

    Times are in ns after `origin_ns`, by the clock of the node.
    """

    node: str
    ports: tuple[str, ...]
    owner: str
    stage: str
    origin_ns: int
    interval_ns: int
    columns: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class NodeSums:
    """Sums over the rails of a node: `rates` (2, samples), NaN for missing; the first sample ends at `start_ns`."""

    start_ns: int
    interval_ns: int
    rates: npt.NDArray[np.float32]
    rails_observed: Counts
    rails: Counts


class ReportSource:
    """The chosen part of a dataset in a directory.

    Raises:
        DatasetError: it is no dataset, it has nothing of the choice, or duckdb is missing.
    """

    def __init__(self, path: Path, choice: DatasetChoice) -> None:
        try:
            import duckdb
        except ImportError as error:
            reason = f"reports of datasets need duckdb, which is not installed; {how_to_install('duckdb')}"
            raise DatasetError(reason) from error
        DatasetStore(str(path)).check()
        self.path, self.choice = path, choice
        self._errors: type[Exception] = duckdb.Error
        self._database = duckdb.connect(config=dict(SETTINGS))
        self.nodes = {node.name: node for node in self._read_nodes()}
        if not self.nodes:
            jobs = sorted({part.job for _, part, _ in self._files((FILES,)) if part.job}, key=natural_key)
            if choice.job and choice.job not in jobs:
                had = f"the jobs {names_text(jobs)}" if jobs else "parts of no job"
                raise DatasetError(f"{path} has no job {choice.job!r}; it has {had}")
            raise DatasetError(f"{path} has no complete part of {choice.text} in this span; choose another one")
        spans = [(part.start_ns, part.end_ns) for node in self.nodes.values() for part in node.parts]
        self.origin_ns = min(begin for begin, _ in spans)
        self.end_ns = max(end for _, end in spans)

    def close(self) -> None:
        """Release the memory of the database."""
        self._database.close()

    def steps(self) -> list[GroupSteps]:
        """The steps of all groups of ports."""
        rows: dict[tuple[str, str, str, str], list[dict[str, Floats]]] = {}
        total = 0
        for node in self.nodes.values():
            found = self._select(self._step_columns(), STEPS, node, "begin_ns", "begin_ns IS NOT NULL")
            total += len(found["step"])
            if total > MAX_STEPS:
                raise DatasetError(f"{self.path} has more than {MAX_STEPS} steps in this span; choose a shorter one")
            keys = list(zip(*(_texts(found[name]) for name in ("ports", "owner", "stage")), strict=True))
            for key in dict.fromkeys(keys):
                mine = np.array([each == key for each in keys], dtype=np.bool_)
                rows.setdefault((node.name, *key), []).append(
                    {name: _floats(values[mine]) for name, values in found.items() if name not in _WORDS}
                )
        return [
            GroupSteps(
                *(node, tuple(ports.split(",")), owner, stage),
                *(self.origin_ns, self.nodes[node].interval_ns, _join(parts)),
            )
            for (node, ports, owner, stage), parts in rows.items()
        ]

    def samples(self, name: str) -> NodeSums | None:
        """The sums of a node on a regular grid; None if it has none."""
        node = self.nodes[name]
        columns = "time_ns, transmit_bytes_per_second, receive_bytes_per_second, rails_observed, rails"
        found = self._select(columns, NODE_SUMS, node, "time_ns")
        times = np.asarray(found["time_ns"], dtype=np.int64)
        if not len(times):
            return None
        places = (times - times[0]) // node.interval_ns
        size = int(places[-1]) + 1
        # there may be hours between two parts
        self._check_memory(size * ROW_BYTES[NODE_SUMS])
        rates = np.full((2, size), np.nan, dtype=np.float32)
        for way, direction in enumerate(("transmit", "receive")):
            rates[way, places] = _singles(found[f"{direction}_bytes_per_second"])
        observed, rails = np.zeros(size, dtype=np.int64), np.full(size, node.rails, dtype=np.int64)
        observed[places], rails[places] = found["rails_observed"], found["rails"]
        return NodeSums(int(times[0]), node.interval_ns, rates, observed, rails)

    def rail_seconds(self, name: str) -> tuple[list[str], Counts, Floats]:
        """The rails of a node, the begins of seconds by its clock, and their mean rates: (2, seconds, rails)."""
        columns = "time_ns, port::VARCHAR AS port, transmit_bytes_per_second, receive_bytes_per_second"
        found = self._select(columns, RAIL_SECONDS, self.nodes[name], "time_ns")
        ports = sorted(set(_texts(found["port"])), key=natural_key)
        seconds, row = np.unique(np.asarray(found["time_ns"], dtype=np.int64), return_inverse=True)
        column = np.array([ports.index(port) for port in _texts(found["port"])], dtype=np.intp)
        rates = np.full((2, len(seconds), len(ports)), np.nan)
        for way, direction in enumerate(("transmit", "receive")):
            rates[way, row, column] = _floats(found[f"{direction}_bytes_per_second"])
        return ports, seconds, rates

    def missing(self) -> list[tuple[str, int, int, str]]:
        """What was not collected: node, from, to, reason."""
        files = [(part, path) for tier, part, path in self._files((MISSING,)) if tier == MISSING and self._chosen(part)]
        found = []
        for part, path in files:
            rows = self._run("SELECT from_ns, to_ns, reason FROM read_parquet($files)", MISSING, [path])
            found += [
                (part.node, int(begin), int(end), str(reason))
                for begin, end, reason in zip(rows["from_ns"], rows["to_ns"], rows["reason"], strict=True)
                if self._inside(int(begin), int(end))
            ]
        return found

    def _step_columns(self) -> str:
        edges = ", ".join(
            f"{name}_ns - {self.origin_ns} AS {name}, {name}_bound_ns AS {name}_bound, {name}_resolved"
            for name in _EDGES
        )
        numbers = "step, end_ns - begin_ns AS length, transmit_bytes, receive_bytes, silent_ratio, missing_ratio"
        return f"ports::VARCHAR AS ports, owner::VARCHAR AS owner, stage::VARCHAR AS stage, {edges}, {numbers}"

    def _read_nodes(self) -> list[FleetNode]:
        chosen: dict[str, list[tuple[Part, dict[str, Any]]]] = {}
        for _, part, path in self._files((FILES,)):
            if not self._chosen(part):
                continue
            rows = self._run(f"SELECT {', '.join(_FILE_COLUMNS)} FROM read_parquet($files)", FILES, [path])
            row = {name: _plain(values[0]) for name, values in rows.items() if len(values)}
            if row and self._inside(row["start_ns"], row["end_ns"]):
                chosen.setdefault(part.node, []).append((part, row))
        return [_make_node(name, chosen[name]) for name in sorted(chosen, key=natural_key)]

    def _files(self, tiers: Sequence[str]) -> Iterable[tuple[str, Part, str]]:
        for tier in tiers:
            for path in sorted((self.path / f"tier={tier}").glob("job=*/date=*/hour=*/node=*/part-*.parquet")):
                parsed = parse_path(str(path.relative_to(self.path)))
                if parsed is not None:
                    yield *parsed, str(path)

    def _chosen(self, part: Part) -> bool:
        return not self.choice.job or part.job == self.choice.job

    def _inside(self, begin_ns: int, end_ns: int) -> bool:
        first, last = self.choice.begin_ns, self.choice.end_ns
        return (last is None or begin_ns < last) and (first is None or end_ns > first)

    def _select(
        self, columns: str, tier: str, node: FleetNode, time: str, condition: str = "true"
    ) -> dict[str, npt.NDArray[Any]]:
        files = [str(path) for each in node.parts if (path := self.path / each.part.path(tier)).exists()]
        if not files:
            files, condition = [str(next(iter(sorted(self.path.glob(f"tier={tier}/**/*.parquet")))))], "false"
        first, last = self.choice.begin_ns, self.choice.end_ns
        if first is not None:
            condition += f" AND {time} >= {first + node.offset_ns}"
        if last is not None:
            condition += f" AND {time} < {last + node.offset_ns}"
        return self._run(f"SELECT {columns} FROM read_parquet($files) WHERE {condition} ORDER BY {time}", tier, files)

    def _run(self, query: str, tier: str, files: list[str]) -> dict[str, npt.NDArray[Any]]:
        """The result of a query, after a check of the rows that the files have by their footers."""
        try:
            counted = "SELECT max(num_rows), sum(num_rows) FROM parquet_file_metadata($files)"
            most, total = self._database.execute(counted, {"files": files}).fetchall()[0]
            check_rows(self.path, tier, int(most))
            self._check_memory(int(total) * ROW_BYTES[tier])
            # files of this dataset have no keys inside, and its paths are read by `parse_path`
            query = query.replace("$files", "$files, hive_partitioning = false, union_by_name = true")
            found = self._database.execute(query, {"files": files}).fetchnumpy()
            return {name: np.ma.asarray(values) for name, values in found.items()}
        except self._errors as error:
            raise DatasetError(f"{self.path} cannot be read: {split_lines(str(error))[0]}") from error

    def _check_memory(self, need_bytes: int) -> None:
        spare_bytes = memory.spare_bytes()
        if need_bytes > spare_bytes:
            raise DatasetError(
                f"{self.path} takes {size_text(need_bytes)} of memory for one node, more than the "
                f"{size_text(spare_bytes)} that can be spared; choose a shorter span"
            )


_WORDS = ("ports", "owner", "stage")


def _make_node(name: str, rows: Sequence[tuple[Part, Mapping[str, Any]]]) -> FleetNode:
    rows = sorted(rows, key=lambda one: one[1]["start_ns"])
    last = rows[-1][1]
    known = last["clock_offset_ns"] is not None and last["clock_bound_ns"] is not None
    samples = [row["end_ns"] - row["start_ns"] for _, row in rows]
    observed = sum(row["observed_ratio"] * size for (_, row), size in zip(rows, samples, strict=True))
    return FleetNode(
        name,
        tuple(NodePart(part, row["start_ns"], row["end_ns"]) for part, row in rows),
        tuple(dict.fromkeys(part.job for part, _ in rows if part.job)),
        last["interval_ns"],
        max(row["resolution_ns"] for _, row in rows),
        last["rails"],
        last["line_rate_bytes_per_second"],
        observed / max(1, sum(samples)),
        any(row["simulated"] for _, row in rows),
        ClockOffset(last["clock_offset_ns"], last["clock_bound_ns"]) if known else None,
        last["clock_synchronised"],
        {label: last[label] for label in ("leaf", "rack", "rank", "stage") if last[label]},
    )


def _join(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _plain(value: Any) -> Any:
    if value is np.ma.masked or value is None:
        return None
    return value.item() if isinstance(value, np.generic) else value


def _texts(values: npt.NDArray[Any]) -> list[str]:
    """Texts, empty for null."""
    filled = values.filled("") if isinstance(values, np.ma.MaskedArray) else values
    return [each or "" for each in filled.tolist()]


def _floats(values: npt.NDArray[Any]) -> Floats:
    return np.ma.filled(np.ma.asarray(values).astype(np.float64), np.nan)


def _singles(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return np.ma.filled(np.ma.asarray(values).astype(np.float32), np.nan)


def seconds_text(ns: float) -> str:
    """A time after the beginning of the dataset."""
    return f"+{ns / SECOND_NS:.2f} s"
