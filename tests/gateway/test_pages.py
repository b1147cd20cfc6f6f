"""The pages, the list of nodes, the metrics and the probes of the gateway, and who may take captures."""

from __future__ import annotations

import re
from contextlib import aclosing
from pathlib import Path

import bcrypt
import httpx
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families

from ibpulse.gateway.pages import RUNBOOKS
from tests.docs.pages import ROOT
from tests.fleet.daemons import LOOP_CLOCK, Daemon, poll_all
from tests.fleet.hostile import Hostile, never
from tests.fleet.small_answers import answer_node, jobs_of
from tests.gateway.gateways import VERSION, Gateway
from tests.running import Metrics


async def test_the_list_has_all_nodes_with_problems_first(gateway: Gateway, daemon: Daemon, server: Hostile) -> None:
    server.handlers["/api/v1/ports"] = never
    await gateway.list(good=daemon.url, hung=server.url)
    found = (await gateway.client.get("/api/v1/nodes")).json()
    assert found["version"] == VERSION
    assert [node["node"] for node in found["nodes"]] == ["hung", "good"]
    hung, good = found["nodes"]
    assert (hung["problem"], hung["problem_text"]) == ("no-answer", "no answer within 1 s")
    assert (hung["clock"], hung["rails"], hung["version"]) == (None, None, "")
    assert (good["problem"], good["problem_text"], good["rails"], good["rails_down"]) == ("", "", 2, [])
    assert good["labels"] == {"rack": "r1"}
    assert good["clock"]["offset_ms"] == 0
    (source,) = found["sources"]
    assert (source["nodes"], source["problem"]) == (2, "")
    assert source["age_seconds"] < 60


async def test_a_source_that_fails_is_named_and_keeps_its_nodes(gateway: Gateway, daemon: Daemon) -> None:
    await gateway.list(good=daemon.url)
    gateway.path.write_text("[")
    await gateway.discovery.refresh()
    found = (await gateway.client.get("/api/v1/nodes")).json()
    assert [node["node"] for node in found["nodes"]] == ["good"]
    assert "not JSON" in found["sources"][0]["problem"]


async def test_a_node_without_a_name_has_that_of_its_daemon(gateway: Gateway, daemon: Daemon, server: Hostile) -> None:
    await gateway.list(unnamed=daemon.url)
    assert [row.name for row in gateway.table.rows()] == ["127.0.0.1"]
    await poll_all(gateway.table)
    (row,) = gateway.table.rows()
    assert (row.name, row.state) == ("gpu-7", "up")
    assert row.ports is not None
    assert (await gateway.client.get("/node/gpu-7/api/v1/ports")).status_code == 200
    assert (await gateway.client.get("/node/127.0.0.1/api/v1/ports")).status_code == 404


async def test_no_daemon_takes_the_name_of_a_listed_node(gateway: Gateway, daemon: Daemon, server: Hostile) -> None:
    server.answer("/api/v1/clock", b'{"time_ns": 1, "synchronised": true, "node": "gpu-1"}')
    server.answer("/api/v1/ports", await daemon.ports())
    await gateway.list(**{"gpu-1": daemon.url, "unnamed": server.url})
    await poll_all(gateway.table)
    rows = {row.name: row for row in gateway.table.rows()}
    assert set(rows) == {"gpu-1", "127.0.0.1"}
    assert rows["gpu-1"].target.url == daemon.url
    assert "calls itself 'gpu-1', as another node is called" in rows["127.0.0.1"].problem
    # a name that is none is ignored
    server.answer("/api/v1/clock", b'{"time_ns": 1, "synchronised": true, "node": "../../etc"}')
    await poll_all(gateway.table)
    assert {row.name for row in gateway.table.rows()} == {"gpu-1", "127.0.0.1"}


async def test_pages_have_relative_addresses_and_escape_names(gateway: Gateway, daemon: Daemon) -> None:
    await gateway.list(gpu=daemon.url)
    for path in ("/", "/node/gpu/", "/job/slurm:4711", "/api/docs"):
        page = (await gateway.client.get(path)).text
        assert not re.search('(href|src)="/', page)
        # the page of a node has it hidden, and a gateway takes captures of jobs alone
        assert 'id="capture"' not in page.replace('id="capture" hidden', "")
    unknown = await gateway.client.get("/node/<b>/")
    assert (unknown.status_code, unknown.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "No such node: &#x27;&lt;b&gt;&#x27;" in unknown.text


async def test_metrics_are_those_of_the_gateway(gateway: Gateway, daemon: Daemon, server: Hostile) -> None:
    server.handlers["/api/v1/ports"] = never
    await gateway.list(good=daemon.url, hung=server.url)
    gateway.path.write_text("[")
    await gateway.discovery.refresh()
    text = (await gateway.client.get("/metrics")).text
    found = Metrics.parse(text)
    words = ("up", "down", "degraded", "waiting")
    states = {word: found.value("ibpulse_gateway_nodes", state=word) for word in words}
    assert states == {"up": 1, "down": 1, "degraded": 0, "waiting": 0}
    assert found.value("ibpulse_gateway_node_requests_total", outcome="no-answer") == 1
    assert found.value("ibpulse_gateway_node_requests_total", outcome="answered") >= 4
    assert found.value("ibpulse_gateway_node_clock_offset_seconds", node="good") == 0
    assert found.value("ibpulse_gateway_node_clock_uncertainty_seconds", node="good") >= 0
    assert found.value("ibpulse_gateway_discovery_failures_total", source=str(gateway.path)) == 1
    names = [family.name for family in text_string_to_metric_families(text)]
    assert not [name for name in names if name.startswith("ibpulse_port")]
    other = await gateway.client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert other.text.endswith("# EOF\n")


async def test_only_the_probes_need_no_password(tmp_path: Path, daemon: Daemon) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users: {{ops: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n")
    gateway = Gateway(tmp_path, config, LOOP_CLOCK)
    async with aclosing(gateway):
        assert (await gateway.client.get("/-/ready")).status_code == 503
        await gateway.list(gpu=daemon.url)
        for path in ("/", "/api/v1/nodes", "/node/gpu/api/v1/ports", "/node/gpu/api/v1/stream", "/metrics"):
            assert (await gateway.client.get(path)).status_code == 401
        ready = await gateway.client.get("/-/ready")
        assert (ready.status_code, ready.text) == (200, "Ready: 1 of 1 nodes answer.\n")
        gateway.client.auth = httpx.BasicAuth("ops", "secret")
        assert (await gateway.client.get("/api/v1/nodes")).status_code == 200
        # users may take captures
        assert 'id="capture"' in (await gateway.client.get("/job/4711")).text


async def test_times_beyond_dates_of_one_node_leave_the_jobs_of_the_others(
    gateway: Gateway, daemon: Daemon, server: Hostile
) -> None:
    answer_node(server)
    server.answer("/api/v1/clock", b"{}")
    server.answer("/api/v1/jobs", jobs_of({"job_id": "7"}))
    await gateway.list(good=daemon.url, liar=server.url)
    found = (await gateway.client.get("/api/v1/jobs")).json()
    # a clock that is wrong keeps no one from reading the jobs
    assert ([job["job_id"] for job in found["jobs"]], found["refused"]) == (["7"], [])
    server.answer("/api/v1/jobs", jobs_of({"job_id": "8", "began_ms": 253_402_300_800_000}))
    await poll_all(gateway.table)
    found = (await gateway.client.get("/api/v1/jobs")).json()
    assert [job["job_id"] for job in found["jobs"]] == ["7"]
    ((node, reason),) = (each.values() for each in found["refused"])
    assert (node, "began_ms" in reason) == ("liar", True)
    server.answer("/api/v1/jobs", jobs_of())
    await poll_all(gateway.table)
    assert (await gateway.client.get("/api/v1/jobs")).json()["refused"] == []


CAPTURES = ("/api/v1/jobs/4711/captures", "/api/v1/captures/alertmanager")
NOTIFICATION = {"version": "4", "alerts": []}


async def test_nothing_but_captures_of_jobs_can_be_written(gateway: Gateway, server: Hostile) -> None:
    await gateway.list(node=server.url)
    asked = len(server.asked)
    schema = gateway.app.openapi()["paths"]
    writing = {path for path, methods in schema.items() if methods.keys() - {"get"}}
    assert writing == {"/api/v1/jobs/{job}/captures", "/api/v1/captures/alertmanager"}
    hidden = [route for route in gateway.app.routes if isinstance(route, APIRoute) and not route.include_in_schema]
    assert all(route.methods == {"GET"} for route in hidden)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("captures", "captures/alertmanager", "captures/20261123T053000.123Z-request.parquet", "ports"):
            found = await gateway.client.request(method, f"/node/node/api/v1/{path}")
            assert found.status_code == 405, (method, path)
    assert len(server.asked) == asked


async def test_a_user_takes_captures_and_a_reader_does_not(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users: {{ops: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}\n")
    for path in CAPTURES:
        # without a job there is nothing to take, so who may is told so
        allowed = 404 if path.startswith("/api/v1/jobs") else 200
        statuses = []
        for changes, auth in (
            ({}, None),
            ({"allow_unauthenticated": True}, None),
            ({"web_config": config}, httpx.BasicAuth("ops", "secret")),
            ({"web_config": config}, httpx.BasicAuth("ops", "wrong")),
        ):
            gateway = Gateway(tmp_path, **changes)
            body = NOTIFICATION if path.endswith("alertmanager") else {}
            statuses.append((await gateway.client.post(path, json=body, auth=auth)).status_code)
            await gateway.close()
        assert statuses == [403, allowed, allowed, 401]


async def test_a_page_of_another_site_takes_no_captures(writable: Gateway) -> None:
    for path in CAPTURES:
        found = await writable.client.post(path, json=NOTIFICATION, headers={"Sec-Fetch-Site": "cross-site"})
        assert (found.status_code, found.json()["title"]) == (403, "Cross-site write refused")


def test_the_runbooks_are_those_of_the_documentation() -> None:
    pages = sorted((ROOT / "docs" / "runbooks").glob("IBPulse*.md"))
    assert "".join(f"# {text}" for text in RUNBOOKS.values()) == "".join(page.read_text() for page in pages), (
        "make docs"
    )
