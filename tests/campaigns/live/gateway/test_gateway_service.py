"""What goes on in a gateway when a part of it fails inside, and when host names hang."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from ibpulse.commands import gateway_service
from ibpulse.commands.gateway_service import LookupLoop
from ibpulse.internal_errors import GATEWAY_PARTS
from tests.gateway.gateway_process import GatewayProcess
from tests.running import Metrics, Running, eventually

# each fails twice, at other moments, and then does what it should
BROKEN = """
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

METHODS = {
    "ibpulse.fleet.discovery": ("Discovery", "_merge"),
    "ibpulse.fleet.node_table": ("NodeTable", "update"),
    "ibpulse.web.auth.reload": ("WebConfigReloader", "poll"),
}

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        found = PathFinder.find_spec(name, path, target) if name in METHODS else None
        if found:
            run = found.loader.exec_module
            def execute(module):
                run(module)
                break_twice(vars(module)[METHODS[name][0]], METHODS[name][1])
            found.loader.exec_module = execute
        return found

def break_twice(kind, method):
    whole, left = getattr(kind, method), [2]
    def broken(*values):
        if left[0]:
            left[0] -= 1
            raise ZeroDivisionError
        return whole(*values)
    setattr(kind, method, broken)

sys.meta_path.insert(0, Finder())
"""


def test_a_part_that_fails_is_logged_once_counted_and_tried_again(
    tmp_path: Path, daemon: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"{BROKEN}\nimport ibpulse.fleet.discovery as each\neach.REFRESH_SECONDS = 1.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    nodes, config = tmp_path / "nodes.json", tmp_path / "web.yml"
    nodes.write_text(json.dumps([{"targets": [daemon.url], "labels": {"node": "gpu-1"}}]))
    config.write_text("rate_limit: {interval: 1ms, burst: 1000}\n")
    flags = (f"--nodes.sources={nodes}", f"--web.config.file={config}")
    with GatewayProcess(tmp_path, *flags, broken=True) as gateway:

        def errors() -> dict[str, float]:
            found = Metrics.parse(gateway.ask("/metrics").text).find("ibpulse_internal_errors_total")
            return {dict(labels)["part"]: count for labels, count in found.items()}

        eventually(lambda: errors() == dict.fromkeys(GATEWAY_PARTS, 2.0), 60)
        eventually(lambda: any(node["clock"] for node in gateway.nodes().values()), 60)
        # the reload works again too
        config.write_text("http_server_config: {headers: {Strict-Transport-Security: max-age=1}}\n")
        eventually(lambda: "strict-transport-security" in gateway.ask("/-/healthy").headers)
    text = gateway.log()
    for part in GATEWAY_PARTS:
        assert text.count(f"internal error in {part}: ZeroDivisionError; retrying") == 1
    assert "there were internal errors: discovery 2, nodes 2, web 2" in text


def test_a_name_that_hangs_takes_one_thread_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answered = threading.Event()

    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if host == "hung":
            answered.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "hung")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(gateway_service.socket, "getaddrinfo", look_up)
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
    monkeypatch.setattr(gateway_service.socket, "getaddrinfo", lambda *_, **__: answered.wait(60))

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
            thread.join(0.2)
    assert failed == []
