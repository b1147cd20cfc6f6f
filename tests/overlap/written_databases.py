"""Databases as Nsight Systems and rocprofv3 write them: the tables and columns of the published schemas that matter."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.overlap.played_traces import BEGIN_NS

PROCESS = 4242
SUFFIX = "_00004b37_5e2e_7a4c_9d11_0123456789ab"

# nsys export --type=sqlite of 2024.6.2, EXPORT_SCHEMA_VERSION 3.16.1
NSIGHT = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
    globalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
# rocpd_tables.sql, schema_version 3
ROCPD = """
CREATE TABLE `rocpd_string{0}` ("id" INTEGER PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "string" TEXT NOT NULL UNIQUE);
CREATE TABLE `rocpd_info_agent{0}` ("id" INTEGER PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER NOT NULL,
    "pid" INTEGER NOT NULL, "type" TEXT, "absolute_index" INTEGER, "logical_index" INTEGER, "type_index" INTEGER);
CREATE TABLE `rocpd_info_kernel_symbol{0}` ("id" INTEGER PRIMARY KEY AUTOINCREMENT, "guid" TEXT,
    "kernel_name" TEXT, "display_name" TEXT);
CREATE TABLE `rocpd_event{0}` ("id" INTEGER PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "category_id" INTEGER,
    "extdata" JSONB DEFAULT "{{}}" NOT NULL);
CREATE TABLE `rocpd_region{0}` ("id" INTEGER PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER, "pid" INTEGER,
    "tid" INTEGER, "start" BIGINT, "end" BIGINT, "name_id" INTEGER, "event_id" INTEGER);
CREATE TABLE `rocpd_kernel_dispatch{0}` ("id" INTEGER PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER,
    "pid" INTEGER, "tid" INTEGER, "agent_id" INTEGER, "kernel_id" INTEGER, "queue_id" INTEGER, "stream_id" INTEGER,
    "start" BIGINT NOT NULL, "end" BIGINT NOT NULL);
CREATE TABLE `rocpd_memory_copy{0}` ("id" INTEGER PRIMARY KEY AUTOINCREMENT, "guid" TEXT, "nid" INTEGER,
    "pid" INTEGER, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, "dst_agent_id" INTEGER, "src_agent_id" INTEGER,
    "stream_id" INTEGER);
CREATE VIEW `rocpd_kernel_dispatch` AS SELECT * FROM `rocpd_kernel_dispatch{0}`;
"""


def global_id(process: int, thread: int = 0) -> int:
    """A serialized global identifier: above the process is that of the machine."""
    return 1 << 48 | process << 24 | thread


def _times(event: dict[str, Any]) -> tuple[int, int]:
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def write_nsight(
    path: Path, events: Sequence[dict[str, Any]], process: int = PROCESS, begin_ns: int | None = BEGIN_NS
) -> Path:
    """Add the events of a Kineto trace to an export of Nsight Systems; `begin_ns` is None for one without a clock."""
    new = not path.exists()
    with closing(sqlite3.connect(path)) as base, base:
        if new:
            base.executescript(NSIGHT)
            base.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (begin_ns,))
        for event in events:
            start, end = _times(event)
            base.execute(
                "INSERT OR IGNORE INTO StringIds VALUES (?, ?)",
                (text := zlib.crc32(event["name"].encode()), event["name"]),
            )
            gpu = (start, end, event["pid"], 1, event["tid"], 0, global_id(process))
            if event["cat"] == "kernel":
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?)", (*gpu, text, 0))
            elif event["cat"] == "gpu_memcpy":
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?,?)", (*gpu, 1, 1))
            else:
                thread = global_id(process, process + 1)
                base.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,59,NULL,?,?,0)", (start, end, thread, text))
    return path


def write_rocpd(path: Path, events: Sequence[dict[str, Any]], process: int = PROCESS) -> Path:
    """The events of a Kineto trace as a rocpd database, whose times are those since the start of the machine."""
    with closing(sqlite3.connect(path)) as base, base:
        base.executescript(ROCPD.format(SUFFIX))
        agents = [(1, process, "CPU", 0), (7, process, "GPU", 0), (8, process, "GPU", 1)]
        base.executemany(
            f"INSERT INTO rocpd_info_agent{SUFFIX} (id, nid, pid, type, type_index) VALUES (?,1,?,?,?)", agents
        )
        symbols: dict[str, int] = {}
        for event in events:
            start, end = _times(event)
            if event["cat"] == "kernel":
                symbol = symbols.setdefault(event["name"], len(symbols) + 1)
                base.execute(
                    f"INSERT INTO rocpd_kernel_dispatch{SUFFIX} (pid, agent_id, kernel_id, stream_id, start, end) "
                    "VALUES (?,?,?,?,?,?)",
                    (process, 7 + event["pid"], symbol, event["tid"], start, end),
                )
            elif event["cat"] == "gpu_memcpy":
                base.execute(
                    f"INSERT INTO rocpd_memory_copy{SUFFIX} (pid, start, end, dst_agent_id, src_agent_id, stream_id) "
                    "VALUES (?,?,?,1,?,?)",
                    (process, start, end, 7 + event["pid"], event["tid"]),
                )
            else:
                text = f'{{"message": "{event["name"]}"}}'
                added = base.execute(f"INSERT INTO rocpd_event{SUFFIX} (extdata) VALUES (?)", (text,)).lastrowid
                base.execute(
                    f"INSERT INTO rocpd_region{SUFFIX} (pid, tid, start, end, event_id) VALUES (?,?,?,?,?)",
                    (process, process, start, end, added),
                )
        base.executemany(
            f"INSERT INTO rocpd_info_kernel_symbol{SUFFIX} (id, kernel_name, display_name) VALUES (?, ?, ?)",
            [(number, "mangled", name) for name, number in symbols.items()],
        )
    return path
