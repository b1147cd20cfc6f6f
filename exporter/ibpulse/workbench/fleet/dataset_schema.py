"""The columns of a dataset of many nodes, tier by tier, and the paths of its files.

Times are wall times of the node in integer nanoseconds since the epoch. A column that may be null is so where the value
is not known; missing data is never 0. The keys of the path (`job`, `date`, `hour`, `node`) are not columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from ibpulse.base.units import SECOND_NS
from ibpulse.core.recordings.file_format import pa
from ibpulse.core.recordings.recording import MAX_PORTS

DATASET_VERSION = 1
RAW, NODE_SUMS, RAIL_SECONDS, STEPS, FILES, MISSING = "raw", "node10ms", "rails1s", "steps", "files", "missing"
TIERS = (RAW, NODE_SUMS, RAIL_SECONDS, STEPS, FILES, MISSING)
KEYS = ("job", "date", "hour", "node")
NO_JOB = "__HIVE_DEFAULT_PARTITION__"
"""The value of the key `job` where no job was chosen; readers of Hive partitions give null."""
_WORD = pa.dictionary(pa.int16(), pa.string())
_WAYS = ("transmit", "receive")
EDGES = ("begin", "transmit_first", "receive_first", "transmit_end", "receive_end")
"""The edges of a step: the end of the traffic before it, and first edge and end of the last burst of each direction."""


def _field(name: str, kind: Any, *, known: bool = False) -> Any:
    return pa.field(name, kind, nullable=not known)


def _edge(name: str) -> list[Any]:
    """The time of an edge, by how much it may be wrong at most, and whether it is an estimate from a plateau.

    If it is not, it is only the middle of the times that are possible. All three are null if nothing is known.
    """
    return [
        _field(f"{name}_ns", pa.int64()),
        _field(f"{name}_bound_ns", pa.int64()),
        _field(f"{name}_resolved", pa.bool_()),
    ]


SCHEMAS = {
    # the sums over the compute ports that were observed, for every sample
    NODE_SUMS: pa.schema(
        [
            _field("time_ns", pa.int64(), known=True),
            *(_field(f"{way}_bytes_per_second", pa.float32()) for way in _WAYS),
            _field("rails_observed", pa.int16(), known=True),
            _field("rails", pa.int16(), known=True),
        ]
    ),
    # each compute port for every second; `time_ns` is its begin
    RAIL_SECONDS: pa.schema(
        [
            _field("time_ns", pa.int64(), known=True),
            _field("port", _WORD, known=True),
            *(_field(f"{way}_bytes_per_second", pa.float32()) for way in _WAYS),
            *(_field(f"{way}_peak_bytes_per_second", pa.float32()) for way in _WAYS),
            _field("observed_ratio", pa.float32(), known=True),
        ]
    ),
    # each step of each group of ports with one owner, one stage and one rhythm
    STEPS: pa.schema(
        [
            _field("group", pa.int16(), known=True),
            _field("ports", _WORD, known=True),
            _field("owner", _WORD),
            _field("stage", _WORD),
            _field("step", pa.int32(), known=True),
            *(field for name in EDGES for field in _edge(name)),
            _field("end_ns", pa.int64()),
            *(_field(f"{way}_bytes", pa.float64(), known=True) for way in _WAYS),
            _field("silent_ratio", pa.float32()),
            _field("missing_ratio", pa.float32(), known=True),
            _field("bridged_samples", pa.int32(), known=True),
        ]
    ),
    # one row for each file of the tier `raw`; written last, so a part without it is not complete
    FILES: pa.schema(
        [
            _field("start_ns", pa.int64(), known=True),
            _field("end_ns", pa.int64(), known=True),
            _field("interval_ns", pa.int64(), known=True),
            _field("resolution_ns", pa.int64(), known=True),
            _field("samples", pa.int64(), known=True),
            _field("ports", pa.int16(), known=True),
            _field("rails", pa.int16(), known=True),
            _field("line_rate_bytes_per_second", pa.float64()),
            _field("observed_ratio", pa.float32(), known=True),
            _field("step_groups", pa.int16(), known=True),
            _field("source", pa.string(), known=True),
            _field("ibpulse_version", pa.string(), known=True),
            _field("simulated", pa.bool_(), known=True),
            _field("clock_offset_ns", pa.int64()),
            _field("clock_bound_ns", pa.int64()),
            _field("clock_synchronised", pa.bool_()),
            _field("clock_measured_ns", pa.int64()),
            *(_field(name, pa.string()) for name in ("leaf", "rack", "rank", "stage")),
        ]
    ),
    # spans of which nothing was collected, and why
    MISSING: pa.schema(
        [
            _field("from_ns", pa.int64(), known=True),
            _field("to_ns", pa.int64(), known=True),
            _field("reason", pa.string(), known=True),
        ]
    ),
}

# a part lies within one hour: samples of 1 ms, seconds of each port, and at most one step of 256 groups each second
MAX_ROWS = {
    NODE_SUMS: 3_600_001,
    RAIL_SECONDS: 3_601 * MAX_PORTS,
    STEPS: 3_601 * MAX_PORTS,
    FILES: 1,
    MISSING: 3_600,
}
"""Rows of the file of a part; one with more is not of ibpulse."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one file of each tier is about: a node, and a span that begins at wall time `start_ns`, within one hour.

    `job` is empty where no job was chosen.
    """

    job: str
    node: str
    start_ns: int

    def path(self, tier: str) -> str:
        """The path of its file of a tier, relative to the dataset."""
        begin = datetime.fromtimestamp(self.start_ns // SECOND_NS, UTC)
        keys = {
            "tier": tier,
            "job": encode_key(self.job) if self.job else NO_JOB,
            "date": f"{begin:%Y-%m-%d}",
            "hour": f"{begin:%H}",
            "node": encode_key(self.node),
        }
        return "/".join([*(f"{key}={value}" for key, value in keys.items()), f"part-{self.start_ns}.parquet"])


def encode_key(text: str) -> str:
    """A value as a part of a path: what is not a letter, a digit or one of `_.-~` is percent-encoded."""
    coded = quote(text, safe="")
    # names of a directory that mean another one
    return coded.replace(".", "%2E") if coded.strip(".") == "" else coded


def decode_key(text: str) -> str:
    """The value of a part of a path."""
    return unquote(text)


def parse_path(path: str) -> tuple[str, Part] | None:
    """Tier and part of a file by its path; None if it is not one of a dataset."""
    *folders, name = path.split("/")
    pairs = dict(folder.split("=", 1) for folder in folders[-len(KEYS) - 1 :] if "=" in folder)
    number = name.removeprefix("part-").removesuffix(".parquet")
    if list(pairs) != ["tier", *KEYS] or name != f"part-{number}.parquet" or not number.isdecimal():
        return None
    job = "" if pairs["job"] == NO_JOB else decode_key(pairs["job"])
    return pairs["tier"], Part(job, decode_key(pairs["node"]), int(number))
