"""`ibpulse gateway` as a process, where the lookup of a host name hangs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.running import eventually
from tests.smoke.parts import IBPULSE, get, program


def test_a_lookup_that_hangs_does_not_delay_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "nodes.json"
    listed.write_text(json.dumps([{"targets": ["gpu-1.invalid-but-slow.example:10055"]}]))
    hang = "import socket, time\nsocket.getaddrinfo = lambda *_, **__: time.sleep(3600)\n"
    (tmp_path / "sitecustomize.py").write_text(hang)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    # no address, which would have to be looked up
    words = (*IBPULSE, "gateway", "--web.listen-address=:0", f"--nodes.sources={listed}")
    with program(tmp_path / "log", *words) as gateway:
        url = gateway.said(r"serving (http://[^ ]+)/\n").replace("localhost", "127.0.0.1")
        eventually(lambda: [node["problem"] for node in get(f"{url}/api/v1/nodes")["nodes"]] == ["no-answer"])
