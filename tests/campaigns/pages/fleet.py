"""A gateway's pages over simulated nodes: the contract of docs/gateway.md as a small real server. It asserts nothing.

All nodes have steps of 315 ms. `gpu-003` begins them 40 ms late, `mlx5_3:1` carries twice as much as the other rails on
all nodes, `gpu-005` does not answer, the clock of `gpu-007` is 12 ms ahead, and that of `gpu-008` is not known.
`gpu-001` stops first if the job hangs.
"""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ibpulse.core.http.pages import PageFiles
from ibpulse.core.http.server import serve
from ibpulse.gateway.pages import job_page, node_page, nodes_page

VERSION = "1.2.3"
JOB = "4711"
ABOUT_JOB = {"job_id": JOB, "scheduler": "slurm", "name": "llama-70b", "began_ms": 1763683203030, "ended_ms": None}
ENDED = ABOUT_JOB | {"job_id": "4690", "ended_ms": 1763683203030, "running": False}
ENDED |= {"nodes": ["gpu-001", "gpu-002"]}
INTERVAL_MS, BATCH_MS, HISTORY_MS, DELAY_MS = 10, 100, 300_000, 300
PERIOD_MS, ACTIVE_PART, LATE_MS = 315, 0.6, 40
FIRST_MS = 1900
RAILS, RAIL_RATE = 8, 50e9
LATE, DEAD, AHEAD, UNKNOWN = "gpu-003", "gpu-005", "gpu-007", "gpu-008"
HOT = "mlx5_3:1"
Floats = npt.NDArray[np.float64]


@dataclass
class Fleet:
    """What the simulated nodes do; a test may change all but their number.

    The job is silent from `hung_ms` on. `idle` nodes have a rail that carries nothing.
    """

    count: int = 16
    dead: set[str] = field(default_factory=lambda: {DEAD})
    events: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    hung_ms: int | None = None
    idle: set[str] = field(default_factory=set)

    @cached_property
    def nodes(self) -> list[str]:
        return [f"gpu-{number:03}" for number in range(1, self.count + 1)]

    @cached_property
    def begun_ms(self) -> int:
        return now_ms() - HISTORY_MS

    def rows(self, asked: dict[str, list[str]]) -> list[dict[str, Any]]:
        """The rows that a query chooses."""
        nodes = [name for name in self.nodes if name in asked.get("node", self.nodes)]
        if asked.get("rows") != ["rails"]:
            return [self._row(name, name, None, RAILS * RAIL_RATE) for name in nodes]
        ports = [f"mlx5_{number}:1" for number in range(RAILS)]
        return [self._row(f"{name} {port}", name, port, RAIL_RATE) for name in nodes for port in ports]

    def _row(self, row: str, node: str, port: str | None, rate: float) -> dict[str, Any]:
        dead = node in self.dead
        number = self.nodes.index(node)
        state = {"state": "ACTIVE", "active": True, "rate_bytes_per_second": rate, "rail": True, "problem": ""}
        now = state | ({"problem": "no-answer"} if dead else {})
        return {
            "row": row,
            "node": node,
            "port": port,
            "labels": {"rack": f"r{number // 4 + 1:02}", "leaf": f"leaf-{number // 8 + 1}"},
            **now,
            "problem_text": "no answer within 1 s" if dead else "",
            "since_ms": None,
            "states": [{"from_ms": self.begun_ms, **now}],
        }

    def rates(self, row: dict[str, Any], ms: Floats) -> Floats:
        """Bytes per second of a row at some times of its samples: (2, times), NaN for missing data."""
        number = self.nodes.index(row["node"]) + 1
        late = LATE_MS if row["node"] == LATE else number % 3
        noise = np.modf(np.abs(np.sin(ms / 10 * 12.9898 + number * 78.233) * 43758.5453))[0]
        level = 0.55 if row["port"] is None else 0.9 if row["port"] == HOT else 0.5
        found = np.zeros((2, len(ms)))
        for way, shift in enumerate((0, 8)):
            phase = np.mod(ms - late - shift, PERIOD_MS) / PERIOD_MS
            height = level * row["rate_bytes_per_second"] * (0.85 + 0.15 * noise)
            found[way] = np.where(phase < ACTIVE_PART, np.where(phase < 0.1, height * 0.5, height), 0.0)
        if self.hung_ms is not None:
            found[:, ms >= self.hung_ms - (FIRST_MS if number == 1 else 0)] = 0.0
        missing = (ms < self.begun_ms) | (ms > now_ms() - DELAY_MS) | (row["node"] in self.dead)
        found[
            :, missing | (np.mod(ms, 60_000) - 1000 * number % 60_000 < 40) & (np.mod(ms, 60_000) > 1000 * number)
        ] = np.nan
        return found

    def highest(self, rows: list[dict[str, Any]], from_ms: int, width_ms: int, count: int) -> Floats:
        """The highest sample in each bin: (series, bins)."""
        ms = from_ms + INTERVAL_MS * np.arange(count * width_ms // INTERVAL_MS, dtype=np.float64)
        every = np.concatenate([self.rates(row, ms) for row in rows]).reshape(2 * len(rows), count, -1)
        none = np.isnan(every).all(axis=-1)
        return np.where(none, np.nan, np.nanmax(np.where(none[..., None], 0.0, every), axis=-1))

    def clock(self, node: str) -> dict[str, Any] | None:
        number = self.nodes.index(node)
        offset = 12.1 if node == AHEAD else round(0.31 * np.sin(number), 3)
        known = node not in self.dead and node != UNKNOWN
        return {"offset_ms": offset, "uncertainty_ms": 0.12, "synchronised": node != AHEAD} if known else None

    def numbers(self, row: dict[str, Any]) -> dict[str, Any]:
        """The statistics of a row as in an event `summary`."""
        node = row["node"]
        clock = self.clock(node)
        known = clock is not None
        ms = now_ms() - DELAY_MS - INTERVAL_MS * np.arange(100, dtype=np.float64)
        rates = self.rates(row, ms)
        ways = dict(zip(("transmit", "receive"), rates, strict=True))
        dead = node in self.dead
        return {
            "row": row["row"],
            "node": node,
            "clock": clock,
            "mean_bytes_per_second": {way: None if dead else float(np.nanmean(each)) for way, each in ways.items()},
            "peak_bytes_per_second": {way: None if dead else float(np.nanmax(each)) for way, each in ways.items()},
            "active_bytes_per_second": None if dead else float(np.nanmax(rates.sum(axis=0)) * 0.9),
            "duty_cycle_ratio": None if dead else 0.6,
            "step_period_seconds": None if dead else PERIOD_MS / 1000,
            "rail_fairness_ratio": None if dead else 0.957,
            "lateness_ms": (38.6 if node == LATE else 0.4) if known else None,
            "lateness_uncertainty_ms": 1.2 if known else None,
            "late": node == LATE,
            "rails_down": [],
            "rails_idle": [],
            "rails_slow": [],
        }

    def summary(self, rows: list[dict[str, Any]], end_ms: int) -> dict[str, Any]:
        """An event `summary`, or an answer about a window."""
        answering = [name for name in self.nodes if name not in self.dead]
        numbers = [self.numbers(row) for row in rows]
        sums = {
            way: float(sum(self.numbers(row)["mean_bytes_per_second"][way] or 0 for row in self.rows({})))
            for way in ("transmit", "receive")
        }
        late = LATE in answering
        offsets = [clock["offset_ms"] for name in answering if (clock := self.clock(name))]
        return {
            "end_ms": end_ms,
            "job": {
                "nodes": self.count,
                "answering": len(answering),
                "missing": [
                    {"node": name, "reason": "no answer within 1 s"} for name in self.nodes if name in self.dead
                ],
                "rails": RAILS * len(answering),
                "active_rails": RAILS * len(answering),
                "line_rate_bytes_per_second": RAILS * RAIL_RATE * self.count,
                "transmit_bytes_per_second": sums["transmit"],
                "receive_bytes_per_second": sums["receive"],
                "peak": {"row": self.nodes[0], "bytes_per_second": 4.4e11},
                "active_bytes_per_second": {"median": 3.96e11, "least": 3.91e11, "most": 3.99e11},
                "duty_cycle_ratio": {"median": 0.6, "least": 0.594, "most": 0.603},
                "step_period_seconds": {"median": 0.315, "least": 0.3149, "most": 0.3152},
                "lateness_nodes": len(answering) - (UNKNOWN in answering),
                "late": {"row": LATE, "lateness_ms": 38.6, "uncertainty_ms": 1.2} if late else None,
                "armed": True,
                "verdict": self.stall(),
                "hot_rail": {"port": HOT, "share_ratio": 0.2045, "usual_ratio": 0.125, "nodes": len(answering)},
                "clock": {"nodes": len(offsets), "spread_ms": max(offsets) - min(offsets), "uncertainty_ms": 0.24},
                "unsynchronised": [AHEAD] if AHEAD in answering else [],
            },
            "rows": numbers,
        }

    def stall(self) -> dict[str, Any] | None:
        """The stall of the job."""
        if self.hung_ms is None:
            return None
        sentence = f"{self.nodes[0]} sent its last byte 1.9 s or more before every other node"
        return {
            "verdict": "node",
            "sentence": sentence,
            "nodes": [self.nodes[0]],
            "rails": [],
            "since_ms": self.hung_ms,
            "since_uncertainty_ms": 20,
            "silent_ms": now_ms() - self.hung_ms,
            "push_after_ms": 7000,
            "pushed": True,
            "ended_ms": None,
            "resumed": False,
            "evidence": [sentence],
            "against": ["no rail has lost its link"],
            "not_known": [],
        }

    def list_verdicts(self) -> dict[str, Any]:
        """The answer of /api/v1/verdicts."""
        stalls = [stall] if (stall := self.stall()) else []
        return {"jobs": [{"job_id": JOB, "scheduler": "slurm", "armed": True, "stalls": stalls}]}

    def list_jobs(self) -> dict[str, Any]:
        """The answer of /api/v1/jobs."""
        running = ABOUT_JOB | {"running": True, "nodes": self.nodes}
        return {"jobs": [running, ENDED], "unknown": []}

    def list_nodes(self) -> dict[str, Any]:
        """The answer of /api/v1/nodes."""
        rows = self.rows({})
        return {
            "version": VERSION,
            "sources": [
                {"source": "file nodes.yml", "nodes": self.count, "problem": self.problem, "age_seconds": 12.0}
            ],
            "nodes": [
                {
                    "node": row["node"],
                    "labels": row["labels"],
                    "problem": row["problem"],
                    "problem_text": row["problem_text"],
                    "since_ms": self.begun_ms if row["problem"] else None,
                    "version": "" if row["problem"] else VERSION,
                    "jobs": [] if row["problem"] else [ABOUT_JOB],
                    "clock": self.clock(row["node"]),
                    "rails": RAILS,
                    "rails_down": ["mlx5_5:1"] if row["node"] == "gpu-002" else [],
                    "rails_idle": ["mlx5_6:1"] if row["node"] in self.idle else [],
                    "rails_slow": [],
                    "down_since_ms": self.begun_ms if row["node"] == "gpu-002" else None,
                    "idle_since_ms": None,
                    "simulated": True,
                }
                for row in rows
            ],
        }


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def asked_of(request: Request) -> dict[str, list[str]]:
    return {name: request.query_params.getlist(name) for name in request.query_params}


def event(name: str, data: dict[str, Any], identity: int | None = None) -> str:
    head = "" if identity is None else f"id: {identity}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n"


class Gateway:
    """The server of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.url = fleet, ""
        self._files = PageFiles()
        self._loop = asyncio.new_event_loop()
        self._begun, self._ending = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    async def _stream(self, request: Request) -> Response:
        asked, fleet = asked_of(request), self.fleet

        async def events() -> AsyncIterator[str]:
            rows, told = fleet.rows(asked), 0
            said: list[dict[str, Any]] = []
            end = (now_ms() - DELAY_MS) // BATCH_MS * BATCH_MS
            while not self._ending.is_set():
                if rows != said:
                    said = rows
                    layout = {"version": VERSION, "interval_ms": INTERVAL_MS, "batch_ms": BATCH_MS, "simulated": True}
                    yield event(
                        "rows",
                        {**layout, "history_ms": HISTORY_MS, "job": ABOUT_JOB, "nodes": fleet.nodes, "rows": rows},
                    )
                    yield event("events", {"events": fleet.events})
                count = (now_ms() - DELAY_MS - end) // BATCH_MS
                if count:
                    rates = np.rint(fleet.highest(rows, end, BATCH_MS, count) / 1e6)
                    values = [[None if np.isnan(each) else int(each) for each in line] for line in rates]
                    yield event("batch", {"start_ms": end, "megabytes_per_second": values}, end)
                    end += count * BATCH_MS
                if end // 1000 != told:
                    told = end // 1000
                    yield event("summary", fleet.summary(rows, told * 1000))
                await asyncio.sleep(0.1)
                rows = fleet.rows(asked)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _window(self, request: Request) -> Response:
        asked, fleet = asked_of(request), self.fleet
        rows = fleet.rows(asked)
        width = int(asked.get("resolution", ["10ms"])[0].removesuffix("ms"))
        newest = (now_ms() - DELAY_MS) // width * width
        start, end = (round(float(asked[name][0])) // width * width for name in ("from", "to"))
        end = max(start, min(end, newest))
        points = (end - start) // width
        series = [f"{row['row']} {way}" for row in rows for way in ("transmit", "receive")]
        about = {"start_ms": start, "end_ms": end, "points": points, "resolution_ms": width, "series": series}
        missing = [row["row"] for row in rows if row["problem"]]
        values = fleet.highest(rows, start, width, points) if points else np.empty((len(series), 0))
        body = io.BytesIO()
        np.save(body, values.astype("<f4"))
        headers = {"X-Ibpulse-Window": json.dumps(about | {"missing": missing})}
        return Response(body.getvalue(), media_type="application/octet-stream", headers=headers)

    async def _summary(self, request: Request) -> Response:
        asked = asked_of(request)
        end = round(float(asked.get("to", [str(now_ms())])[0])) // 1000 * 1000
        return JSONResponse({"window_seconds": 1, **self.fleet.summary(self.fleet.rows(asked), end)})

    def _app(self) -> Starlette:
        async def nodes(_: Request) -> Response:
            return nodes_page(VERSION)

        async def node(request: Request) -> Response:
            return node_page(request.path_params["name"], VERSION, simulated=True)

        async def job(request: Request) -> Response:
            return job_page(request.path_params["job"], VERSION, simulated=True, may_capture=False)

        async def static(request: Request) -> Response:
            return await self._files.get_response(request.path_params["name"], request.scope)

        async def list_nodes(_: Request) -> Response:
            return JSONResponse(self.fleet.list_nodes())

        async def jobs(_: Request) -> Response:
            return JSONResponse(self.fleet.list_jobs())

        async def verdicts(_: Request) -> Response:
            return JSONResponse(self.fleet.list_verdicts())

        async def events(_: Request) -> Response:
            return JSONResponse({"events": self.fleet.events})

        async def nothing(_: Request) -> Response:
            return Response(media_type="text/event-stream")

        api = "/api/v1/jobs/{job}/"
        paths = {"/": nodes, "/node/{name}/": node, "/job/{job}": job, "/static/{name}": static}
        paths |= {"/node/{name}/api/v1/{path:path}": nothing}
        paths |= {
            "/api/v1/nodes": list_nodes,
            "/api/v1/jobs": jobs,
            "/api/v1/verdicts": verdicts,
            f"{api}stream": self._stream,
            f"{api}window": self._window,
        }
        paths |= {f"{api}summary": self._summary, f"{api}events": events}
        return Starlette(routes=[Route(path, endpoint) for path, endpoint in paths.items()])

    async def _run(self) -> None:
        server = await serve(self._app(), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.port}"
        self._begun.set()
        await self._ending.wait()
        await server.stop()

    def start(self) -> None:
        self._thread.start()
        self._begun.wait(20)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(20)
        self._loop.close()


@contextmanager
def gateway(fleet: Fleet) -> Iterator[Gateway]:
    """The gateway at work."""
    made = Gateway(fleet)
    made.start()
    try:
        yield made
    finally:
        made.stop()
