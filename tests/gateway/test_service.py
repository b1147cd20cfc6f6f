"""The running gateway: parts that fail inside, its end, host names that hang, and its command line."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.agent.config.loading import load
from ibpulse.base.internal_errors import GATEWAY_PARTS
from ibpulse.cli import main
from ibpulse.commands.gateway import gateway_options
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.gateway import service
from ibpulse.gateway.nodes.discovery import Discovery
from ibpulse.gateway.nodes.table import NodeTable
from ibpulse.gateway.push import AlertPush
from ibpulse.gateway.service import Gateway, LookupLoop
from ibpulse.gateway.watch import StallWatch
from tests.fleet.hostile import Hostile
from tests.loop_clock import pause, until
from tests.running import HANG_SECONDS, Metrics
from tests.tables import for_each

BROKEN: tuple[tuple[type, str], ...] = (
    (Discovery, "_merge"),
    (NodeTable, "update"),
    (WebConfigReloader, "poll"),
    (StallWatch, "_refresh"),
    (AlertPush, "_tell"),
)
"""A method of each part."""


def fail_twice(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that raises an exception twice, and then does what it should."""
    left = [2]

    def broken(*values: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise ZeroDivisionError
        return method(*values)

    return broken


async def test_a_part_that_fails_is_logged_once_counted_and_tried_again(
    tmp_path: Path, server: Hostile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for kind, method in BROKEN:
        monkeypatch.setattr(kind, method, fail_twice(getattr(kind, method)))
    nodes, config = tmp_path / "nodes.json", tmp_path / "web.yml"
    nodes.write_text(json.dumps([{"targets": [server.url], "labels": {"node": "gpu-1"}}]))
    config.write_text("rate_limit: {interval: 1ms, burst: 1000}\n")
    given = {"web.listen-address": "127.0.0.1:0", "nodes.sources": str(nodes), "web.config.file": str(config)}
    given["gateway.webhook-url"] = f"{server.url}/hook"
    settings = load({name: [text] for name, text in given.items()} | {"capture.allow-unauthenticated": ["true"]}, {})
    gateway = Gateway(gateway_options(settings, {"web.listen-address": "flag"}))
    running = asyncio.create_task(gateway.run())
    await until(lambda: gateway.errors.counts() == dict.fromkeys(GATEWAY_PARTS, 2), 0.5)
    (port,) = {record.args[3] for record in caplog.records if "serving" in record.msg and record.args}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        text = (await client.get("/metrics")).text
        counts = Metrics.parse(text).find("ibpulse_internal_errors_total")
        assert {dict(labels)["part"]: count for labels, count in counts.items()} == dict.fromkeys(GATEWAY_PARTS, 2)
        await until(lambda: server.asked, 1.0)
        (node,) = (await client.get("/api/v1/nodes")).json()["nodes"]
        assert (node["node"], node["problem"]) == ("gpu-1", "bad-answer")
        # captures are for anyone, but there is no such job
        assert (await client.post("/api/v1/jobs/4711/captures", json={})).status_code == 404
        # the reload works again too
        config.write_text("http_server_config: {headers: {Strict-Transport-Security: max-age=1}}\n")
        await pause(3)
        assert "strict-transport-security" in (await client.get("/-/healthy")).headers
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    for part in GATEWAY_PARTS:
        assert len(re.findall(rf"internal error in {part}( \(\S+\))?: ZeroDivisionError; retrying", caplog.text)) == 1
    assert "there were internal errors: discovery 2, nodes 2, push 2, stalls 2, web 2" in caplog.text


def test_a_name_that_hangs_takes_one_thread_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answered = threading.Event()

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if host == "hung":
            answered.wait(HANG_SECONDS)
            raise socket.gaierror(socket.EAI_AGAIN, "hung")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(service.socket, "getaddrinfo", look_up)
    unhandled: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        hung = [asyncio.create_task(loop.getaddrinfo("hung", 1)) for _ in range(200)]
        await asyncio.sleep(0)
        # all but one leave
        for task in hung[:-1]:
            task.cancel()
        await asyncio.gather(*hung[:-1], return_exceptions=True)
        assert len(await loop.getaddrinfo("quick", 1)) == 1
        assert not hung[-1].done()
        answered.set()
        with pytest.raises(socket.gaierror):
            await hung[-1]
        assert len(await loop.getaddrinfo("quick", 1)) == 1

    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        runner.run(run())
    assert asked == ["hung", "quick", "quick"]
    assert unhandled == []


def test_a_loop_ends_while_lookups_hang_of_which_nobody_takes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(service.socket, "getaddrinfo", lambda *_, **__: answered.wait(HANG_SECONDS))

    async def run() -> None:
        asyncio.create_task(asyncio.get_running_loop().getaddrinfo("hung", 1))  # noqa: RUF006
        await asyncio.sleep(0)

    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    with asyncio.Runner(loop_factory=LookupLoop) as runner:
        runner.run(run())
    answered.set()
    for thread in threading.enumerate():
        if thread.name == "lookup":
            thread.join(HANG_SECONDS)
    assert failed == []


@for_each(
    [
        (["--nodes.sources=a.json,a.json"], "nodes.sources: 'a.json' is given twice"),
        (["--demo=1"], "flag --demo: 1 is out of bounds; choose 2 to 64"),
        (["--demo=8", "--nodes.sources=a.json"], "flag --demo: cannot be combined with nodes.sources"),
    ]
)
def test_a_gateway_without_usable_nodes_says_so(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *flags], {}) == 2
    assert sentence in capsys.readouterr().err
