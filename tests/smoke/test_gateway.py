"""A real gateway over two real daemons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from tests.running import HANG_SECONDS, Running, eventually
from tests.smoke.parts import IBPULSE, becomes, get, plain_tree, program


def test_a_gateway_serves_two_daemons_and_goes_on_when_one_ends(tmp_path: Path) -> None:
    first, second = (
        Running(plain_tree(tmp_path / f"sys-{name}"), tmp_path / f"ring-{name}", f"--capture.node={name}")
        for name in ("gpu-1", "gpu-2")
    )
    with first, second:
        nodes = tmp_path / "nodes.json"
        targets = {"gpu-1": first, "gpu-2": second}
        nodes.write_text(
            json.dumps([{"targets": [daemon.url], "labels": {"node": name}} for name, daemon in targets.items()])
        )
        words = (*IBPULSE, "gateway", "--web.listen-address=127.0.0.1:0", f"--nodes.sources={nodes}")
        with program(tmp_path / "gateway.log", *words) as gateway:
            url = gateway.said(r"serving (http://[^ ]+)/\n")

            def listed() -> dict[str, Any]:
                return {node["node"]: node for node in get(f"{url}/api/v1/nodes")["nodes"]}

            def problems() -> dict[str, str]:
                return {name: node["problem"] for name, node in listed().items()}

            becomes(problems, {"gpu-1": "", "gpu-2": ""})
            eventually(lambda: all(node["clock"] for node in listed().values()))
            for name, daemon in targets.items():
                eventually(lambda name=name, daemon=daemon: proxied(url, name) == daemon.ask("/api/v1/ports").json())
            assert second.stop() == 0
            becomes(problems, {"gpu-1": "", "gpu-2": "no-answer"})
            eventually(lambda: proxied(url, "gpu-1") == first.ask("/api/v1/ports").json())
        assert "Traceback" not in gateway.log.read_text()


def proxied(url: str, node: str) -> Any:
    """The ports of a node as the gateway passes them on; a busy node may miss the gateway's deadline."""
    answer = httpx.get(f"{url}/node/{node}/api/v1/ports", timeout=HANG_SECONDS, verify=False)
    return answer.json() if answer.status_code == 200 else None
