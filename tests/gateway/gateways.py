"""A gateway in this process over nodes that are listed in a file, and one that is a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from ibpulse.base.clocks import Clock
from ibpulse.core.client.transport import HttpPeer
from ibpulse.core.http.server import serve
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.core.metrics.text import process_registry
from ibpulse.gateway.nodes.discovery import Discovery, parse_source
from ibpulse.gateway.nodes.requests import Nodes
from ibpulse.gateway.nodes.table import NodeTable
from ibpulse.gateway.parts import GatewayParts
from ibpulse.gateway.service import create_gateway
from tests.docs.pages import ROOT, blocks
from tests.fleet.daemons import poll_all
from tests.running import end, eventually

VERSION = "1.2.3"


class Gateway:
    """The application and what it serves; `client` asks it without a network. `changes` are those of its parts."""

    def __init__(self, directory: Path, web_config: Path | None = None, clock: Clock = time, **changes: Any) -> None:
        self.path = directory / "nodes.json"
        self.discovery = Discovery([parse_source(str(self.path))], clock=clock)
        self.nodes = Nodes(partial(HttpPeer, clock=clock))
        self.table = NodeTable(self.discovery, self.nodes, clock=clock)
        self.parts = GatewayParts(
            discovery=self.discovery,
            nodes=self.nodes,
            table=self.table,
            version=VERSION,
            registry=process_registry(),
            clock=clock,
        )
        if web_config:
            changes["web_config"] = WebConfigReloader(web_config)
        self.parts = replace(self.parts, **changes)
        self.app = create_gateway(self.parts)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app), base_url="http://gateway")

    async def list(self, **urls: str) -> None:
        """List these nodes, by name, and ask each once; a name that begins with `unnamed` is not given."""
        entries = []
        for name, url in urls.items():
            labels = {"rack": "r1"} if name.startswith("unnamed") else {"node": name, "rack": "r1"}
            entries.append({"targets": [url], "labels": labels})
        self.path.write_text(json.dumps(entries))
        await self.discovery.refresh()
        await poll_all(self.table)

    async def aclose(self) -> None:
        await self.close()

    async def close(self) -> None:
        await self.client.aclose()
        await self.nodes.close()
        await self.discovery.close()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Its address, over a real socket."""
        server = await serve(self.app, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            self.parts.ending.set()
            await server.stop()


@contextmanager
def program(log: Path, *words: str) -> Iterator[None]:
    """`ibpulse` with these words, ended by a signal with its block; it must not log errors."""
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-m", "ibpulse", *words], stdout=output, stderr=output)
    try:
        yield
    finally:
        status = end(process, signal.SIGTERM)
    assert status == 0, log.read_text()
    assert "ERROR" not in log.read_text(), log.read_text()


@contextmanager
def running_gateway(directory: Path, *flags: str) -> Iterator[str]:
    """The URL of a gateway with its log in a directory."""
    log = directory / "gateway.log"
    with program(log, "gateway", "--web.listen-address=127.0.0.1:0", *flags):
        found = eventually(lambda: re.search(r"serving (https?://[^ ]+)/\n", log.read_text()))
        yield found[1]


def documented(key: str, page: str = "gateway.md") -> dict[str, Any]:
    """The example of a page in docs/ that has this key at its top."""
    examples = [block for block in blocks(ROOT / "docs" / page) if re.search(f"(?m)^{key}:", block)]
    (found,) = map(yaml.safe_load, examples)
    assert isinstance(found, dict)
    return found
