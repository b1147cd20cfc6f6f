"""Who may do what with a gateway: reading and taking captures."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import httpx
import pytest
from fastapi.routing import APIRoute

from tests.fleet.hostile import Hostile
from tests.gateway.gateways import Gateway

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


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.example"}])
async def test_a_page_of_another_site_takes_no_captures(tmp_path: Path, headers: dict[str, str]) -> None:
    gateway = Gateway(tmp_path, allow_unauthenticated=True)
    for path in CAPTURES:
        found = await gateway.client.post(path, json=NOTIFICATION, headers=headers)
        assert (found.status_code, found.json()["title"]) == (403, "Cross-site write refused")
    await gateway.close()
