"""What the program writes into files: ring, events, capture, recording, dataset."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ibpulse.core.recordings import save
from ibpulse.workbench.simulate.workloads import make_workload
from tests.contract.goldens import Golden, digest
from tests.contract.surroundings import run, surroundings
from tests.datasets import known_traffic
from tests.reports import recordings as simulated
from tests.virtual.node import Node

WORDS_PER_LINE = 4
SHOWN_ROWS = 40


def file_goldens(folder: Path) -> list[Golden]:
    """The files of a node with one rail, a recording of a simulated one, a dataset of another. The folder is empty."""
    with surroundings(folder):
        flags = (
            "--sampler.history=10s",
            "--slow.interval=1s",
            "--capture.allow-unauthenticated=true",
        )
        with Node(Path("node"), *flags, rails=1, interval="100ms", workload="moe") as node:
            node.run(3)
            node.post("/api/v1/captures", {"before": "1s", "after": "500ms", "labels": {"ticket": "12"}})
            node.run(2)
        (capture,) = Path("node/captures").glob("*.parquet")
        save(Path("dense.parquet"), simulated.play(make_workload("dense"), 0.3, rails=2))
        known_traffic.save_nodes(folder, known_traffic.Node("node1"), ticks=300)
        assert run(["fleet", "collect", "node1.parquet", "-o", "set", "--processes=1"]).code == 0
        return [
            Golden("ring.txt", {"ring": dump_words(Path("node/ring/ring").read_bytes())}),
            Golden("events.txt", {"events": Path("node/ring/events").read_text()}),
            Golden("capture.txt", {capture.name: describe_parquet(capture.read_bytes())}),
            Golden("recording.txt", {"dense.parquet": describe_parquet(Path("dense.parquet").read_bytes())}),
            Golden("dataset.txt", {str(path): _describe(path) for path in sorted(Path("set").rglob("*.*"))}),
        ]


def _describe(path: Path) -> str:
    return describe_parquet(path.read_bytes()) if path.suffix == ".parquet" else path.read_text()


def dump_words(data: bytes) -> str:
    """Length and checksum, then the 64-bit words that are not zero in hexadecimal digits, each line with its offset."""
    lines = [f"{len(data)} bytes, SHA-256 {digest(data)}"]
    size = 8 * WORDS_PER_LINE
    for offset in range(0, len(data), size):
        part = data[offset : offset + size]
        if any(part):
            words = (int.from_bytes(part[at : at + 8], "little") for at in range(0, len(part), 8))
            lines.append(f"{offset:08x}  " + "  ".join(f"{word:016x}" for word in words))
    return "\n".join(lines)


def describe_parquet(data: bytes) -> str:
    """Schema, metadata, compression and rows; the bytes are those of the Parquet library, with its version."""
    file = pq.ParquetFile(io.BytesIO(data))
    about, schema = file.metadata, file.schema_arrow
    codecs = sorted({about.row_group(0).column(at).compression for at in range(about.num_columns)})
    lines = [
        f"{about.num_rows} rows, groups {about.num_row_groups}, {' '.join(codecs)}",
        schema.to_string(show_schema_metadata=False),
    ]
    for name, value in sorted((schema.metadata or {}).items()):
        lines.append(f"{name.decode()}: {value.decode()}")
    rows = file.read().to_pylist()
    lines += ["rows:", *(_row(row) for row in rows[:SHOWN_ROWS])]
    if len(rows) > SHOWN_ROWS:
        lines.append(f"SHA-256 of all rows: {digest(chr(10).join(map(_row, rows)).encode())}")
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    return " ".join(_cells(row))


def _cells(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _cells(each)
    elif isinstance(value, list):
        yield "[" + " ".join(cell for each in value for cell in _cells(each)) + "]"
    else:
        yield json.dumps(value, default=str)
