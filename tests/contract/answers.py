"""What a daemon and a gateway answer: every endpoint, refusals, authentication, streams, metrics, OpenAPI documents."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np

from ibpulse.gateway import captures
from tests.contract.files import describe_parquet
from tests.contract.goldens import Golden, digest
from tests.contract.surroundings import surroundings
from tests.virtual.fleet import Fleet
from tests.virtual.node import Node

Request = tuple[str, str, Mapping[str, Any]]
OPENMETRICS = {"headers": {"accept": "application/openmetrics-text; version=1.0.0"}}
SPAN = "last=2s&max_points=8"
CAPTURE = {"before": "2s", "after": "1s", "reason": "by hand", "labels": {"ticket": "12"}}
ALERTS = {
    "version": "4",
    "status": "firing",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "IBPulseRailDown", "node": "node-0", "device": "mlx5_1"},
            "startsAt": "2025-11-21T00:00:10Z",
        }
    ],
}
PASSWORD = "secret"
WEB_CONFIG = "basic_auth_users:\n  alice: $2b$04$/bmXEITwxRxgsjIyExe0QeS9ruLwGNBSY9vSSq9eAV.4lqxC1FuL2\n"


def _get(*paths: str) -> list[Request]:
    return [("GET", path, {}) for path in paths]


NODE = (
    *_get("/", "/api/docs", "/-/healthy", "/-/ready"),
    *_get("/api/v1/ports", "/api/v1/topology", "/api/v1/clock", "/api/v1/jobs", "/api/v1/silences"),
    *_get("/api/v1/verdicts"),
    *_get(f"/api/v1/window?{SPAN}&format=json", f"/api/v1/window?{SPAN}&format=csv&unit=utilization"),
    *_get(f"/api/v1/window?{SPAN}&format=npy&statistic=mean", f"/api/v1/window?{SPAN}&format=grafana&port=mlx5_1"),
    *_get("/api/v1/window?last=50ms&format=json&uncertainty=true&direction=transmit&port=mlx5_0:1"),
    *_get("/api/v1/window?last=300ms&resolution=100ms&signals=true&direction=transmit&port=mlx5_0:1"),
    *_get(f"/api/v1/window?{SPAN}&format=json&job=7", "/api/v1/summary?last=10s", "/api/v1/summary?last=5s&job=7"),
    *_get("/api/v1/limits?last=10s", "/api/v1/limits?last=5s&job=7"),
    *_get("/api/v1/events", "/api/v1/events?last=1m&kind=port-state&port=mlx5_1&limit=1"),
    *_get("/api/v1/window?last=2x", "/api/v1/window?last=2h", "/api/v1/window?format=xml", "/api/v1/window?port=eth0"),
    *_get("/api/v1/window?last=1s&last=2s", "/api/v1/window?nonsense=1", "/api/v1/window?job=9999"),
    *_get("/api/v1/summary?last=1500ms", "/api/v1/events?kind=nonsense", "/api/v1/stream?every=10ms"),
    *_get(
        "/metricz",
        "/static/none.css",
        f"/api/v1/events?port={'x' * 20_000}",
        "/metrics?name[]=ibpulse_port_up&name[]=ibpulse_none",
    ),
    ("POST", "/metrics", {}),
    ("HEAD", "/api/v1/ports", {}),
    ("GET", "/api/v1/ports", {"headers": {"host": "evil.example"}}),
    ("GET", "/api/v1/ports", {"headers": {"origin": "http://evil.example"}}),
    ("POST", "/api/v1/captures", {"json": CAPTURE}),
    ("POST", "/api/v1/captures", {"json": {"before": "9h", "nonsense": 1}}),
    ("POST", "/api/v1/captures", {"content": b"{"}),
    ("POST", "/api/v1/captures", {"json": CAPTURE, "headers": {"origin": "http://evil.example"}}),
    ("POST", "/api/v1/captures/alertmanager", {"json": ALERTS}),
    ("POST", "/api/v1/captures/alertmanager", {"json": {"alerts": 7}}),
    *_get("/api/v1/captures", "/api/v1/captures/none.parquet"),
)
"""Asked while captures are pending; then those are downloaded and deleted."""

GATEWAY = (
    *_get(
        "/",
        "/node/node-0/",
        "/node/node-0",
        "/job/7",
        "/runbooks/IBPulseRailIdle",
        "/runbooks/none",
        "/api/docs",
        "/-/healthy",
        "/-/ready",
    ),
    *_get("/api/v1/nodes", "/api/v1/jobs", "/api/v1/verdicts"),
    *(
        ("GET", f"/node/node-0/api/v1/{path}", {})
        for path in ("ports", "topology", "jobs", "events", "captures", "clock", "summary?last=5s", "limits?last=5s")
    ),
    *_get(f"/node/node-0/api/v1/window?{SPAN}&format=json", f"/node/node-0/api/v1/window?{SPAN}&format=npy"),
    *_get("/node/none/api/v1/ports", "/node/node-0/api/v1/window?last=2x", "/node/node-0/api/v1/captures/none"),
    *_get("/api/v1/jobs/7/window?last=2s&max_points=4", "/api/v1/jobs/7/window?last=1s&max_points=4&rows=rails"),
    *_get("/api/v1/jobs/7/summary?last=5s", "/api/v1/jobs/7/events", "/api/v1/jobs/9999/window?last=2s"),
    *_get("/api/v1/jobs/7/window?last=x", "/nowhere"),
    ("POST", "/api/v1/jobs/7/captures", {"json": {"before": "1s", "after": "1s", "reason": "slow step"}}),
    ("POST", "/api/v1/jobs/9999/captures", {"json": {}}),
    ("POST", "/api/v1/captures/alertmanager", {"json": ALERTS}),
    *_get("/api/v1/jobs/7/captures", "/api/v1/jobs/7/captures/none"),
)

LOGINS: Mapping[str, Mapping[str, str]] = {
    "nobody": {},
    "alice": {"authorization": "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()},
    "alice with a wrong password": {"authorization": "Basic " + base64.b64encode(b"alice:wrong").decode()},
    "a header without a user": {"authorization": "Basic !"},
    "a token": {"authorization": "Bearer x"},
    "a host name that is not served": {"host": "evil.example"},
}


def answer_goldens(folder: Path) -> list[Golden]:
    """A job on two nodes of which one has a rail that was down; then a node with a password. The folder is empty."""
    with surroundings(folder):
        owners = Path("owners")
        owners.mkdir(mode=0o755)
        job = {"id": "7", "scheduler": "slurm", "devices": ["mlx5_0", "mlx5_1"], "name": "pretrain"}
        (owners / "7.json").write_text(json.dumps(job))
        flags = (f"--jobs.owners-dir={folder / owners}", "--slow.interval=1s", "--capture.allow-unauthenticated=true")
        with Fleet(Path(), 2, *flags, rails=2, workload="moe", watched=True) as fleet:
            goldens = _of_fleet(fleet)
        return [*goldens, Golden("authentication.txt", dict(_of_logins(Path("guarded"))))]


def _of_fleet(fleet: Fleet) -> Iterable[Golden]:
    node = fleet.nodes[0]
    fleet.world.patch(captures, "secrets", SimpleNamespace(token_hex=lambda count: "5e" * count))
    fleet.run(6)
    node.fault({"link-flap": ["mlx5_1"]})
    fleet.run(4)
    node.fault()
    fleet.run(4)
    streams = {
        "node-0: GET /api/v1/stream": node.view("/api/v1/stream"),
        "gateway: GET /node/node-1/api/v1/stream?signals=true": fleet.view("/node/node-1/api/v1/stream?signals=true"),
        "gateway: GET /api/v1/jobs/7/stream": fleet.view("/api/v1/jobs/7/stream"),
    }
    fleet.run(1.3)
    events = {title: viewer.received.decode() for title, viewer in streams.items()}
    for viewer in streams.values():
        viewer.leave()

    def send(method: str, path: str, **given: Any) -> httpx.Response:
        return fleet.loop.run_frozen(fleet.request(method, path, **given))  # type: ignore[no-any-return]

    of_node, of_gateway = dict(_answers(node.send, NODE)), dict(_answers(send, GATEWAY))
    fleet.run(4)
    name = node.get("/api/v1/captures")["captures"][0]["name"]
    group = fleet.get("/api/v1/jobs/7/captures")["captures"][0]["id"]
    of_gateway |= _answers(send, _get(f"/node/node-0/api/v1/captures/{name}", f"/api/v1/jobs/7/captures/{group}"))
    of_node |= _answers(node.send, [*_get(f"/api/v1/captures/{name}"), ("DELETE", f"/api/v1/captures/{name}", {})])
    # a real thread reads the file, so nothing else may be asked meanwhile
    metrics = [
        *_get("/metrics", "/static/live.css"),
        ("GET", "/metrics?name[]=ibpulse_port_transmit_bytes_total", OPENMETRICS),
    ]
    of_node |= _answers(node.send, metrics)
    of_gateway |= _answers(send, metrics)
    path = "/api/openapi.json"
    documents = {"node": node.ask(path).text, "gateway": fleet.ask(path).text}
    return [
        Golden("node.txt", of_node),
        Golden("gateway.txt", of_gateway),
        Golden("streams.txt", events),
        *(Golden(f"openapi-{name}.txt", {path: each}) for name, each in documents.items()),
    ]


def _of_logins(folder: Path) -> Iterator[tuple[str, str]]:
    Path("web.yml").write_text(WEB_CONFIG)
    with Node(
        folder, "--web.config.file=web.yml", "--web.hosts=node7.example", rails=1, workload="constant", name="guarded"
    ) as node:
        node.run(2)
        for who, headers in LOGINS.items():
            for path in ("/api/v1/clock", "/-/healthy"):
                yield f"GET {path} by {who}", describe(node.send("GET", path, headers=headers))
            yield f"POST /api/v1/captures by {who}", describe(node.send("POST", "/api/v1/captures", headers=headers))


def _answers(send: Callable[..., httpx.Response], requests: Iterable[Request]) -> Iterator[tuple[str, str]]:
    for method, path, given in requests:
        title = f"{method} {path[:200]}" + "".join(f" {name}={_show(value)}" for name, value in given.items())
        yield title, describe(send(method, path, **given))


def _show(value: object) -> str:
    return repr(value) if isinstance(value, bytes) else json.dumps(value)


def describe(answer: httpx.Response) -> str:
    """Status, headers and body of an answer."""
    # the length depends on the last digits of numbers
    kept = sorted((name, value) for name, value in answer.headers.items() if name != "content-length")
    headers = "".join(f"{name}: {value}\n" for name, value in kept)
    return f"status: {answer.status_code}\n{headers}body:\n{_body(answer)}"


def _body(answer: httpx.Response) -> str:
    """The body as text: arrays as tables, Parquet files by their values, files of pages by their checksums."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind == "application/x-npy":
        return describe_array(answer.content)
    if kind == "application/vnd.apache.parquet" and answer.status_code == 200:
        return describe_parquet(answer.content)
    if kind == "application/x-tar":
        return "".join(_members(answer.content))
    if answer.request.url.path.startswith("/static/") and answer.is_success:
        return f"{len(answer.content)} bytes, SHA-256 {digest(answer.content)}\n"
    return answer.text


def describe_array(data: bytes) -> str:
    """An array in NPY: checksum, type, shape, and values, a row for each series."""
    values = np.load(io.BytesIO(data))
    rows = "".join(" ".join(f"{value!r}" for value in row) + "\n" for row in values.tolist())
    return f"{len(data)} bytes, SHA-256 {digest(data)}\n{values.dtype.str} {values.shape}\n{rows}"


def _members(data: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            opened = archive.extractfile(member)
            assert opened is not None
            content = opened.read()
            yield f"{member.name}: mode {member.mode:o}, time {member.mtime:.0f}\n"
            yield content.decode() if member.name.endswith((".txt", ".json")) else describe_parquet(content)
