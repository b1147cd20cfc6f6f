"""The burst explorer's queries through a real gateway: what a real node answers, value by value."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.fabrics import simulated
from tests.gateway.gateways import documented, running_gateway
from tests.grafana.documents import FOLDER, Target, fill, targets
from tests.running import Running, eventually
from tools.grafana.queries import PLUGIN

NODE = "gpu-1"


@dataclass(frozen=True)
class Source:
    """A node with a finished capture, and the address of the gateway."""

    daemon: Running
    gateway: str

    def ask(self, target: Target, gateway: str, instance: str, until_ms: int) -> Any:
        """The answer to a query of the board, about two seconds that are over."""
        times = {"__timeFrom": str(until_ms - 2000), "__timeTo": str(until_ms)}
        url = fill(target.body["url"], {"scheme": "http", "gateway": gateway, "instance": instance})
        params = {each["key"]: fill(each["value"], times) for each in target.body["url_options"]["params"]}
        answer = httpx.get(url, params=params, timeout=20)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask_node(self, target: Target, until_ms: int) -> Any:
        return self.ask(target, "", self.daemon.url.removeprefix("http://"), until_ms)

    def ask_gateway(self, target: Target, until_ms: int) -> Any:
        return self.ask(target, f"{self.gateway.removeprefix('http://')}/node/", NODE, until_ms)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    directory = tmp_path_factory.mktemp("grafana")
    (directory / "own").mkdir()
    nodes = directory / "nodes.json"
    with (
        simulated(directory / "sys", "moe", ports=2) as tree,
        Running(tree, directory / "own" / "ring", "--capture.allow-unauthenticated=true") as daemon,
    ):
        nodes.write_text(json.dumps([{"targets": [daemon.url], "labels": {"node": NODE}}]))
        with running_gateway(directory, f"--nodes.sources={nodes}") as url:
            httpx.post(f"{daemon.url}/api/v1/captures", json={"before": "1s", "after": "10ms"}).raise_for_status()
            eventually(lambda: daemon.ask("/api/v1/captures").json()["captures"])
            eventually(lambda: httpx.get(f"{url}/node/{NODE}/api/v1/clock").status_code == 200)
            time.sleep(3)
            yield Source(daemon, url)


@pytest.mark.parametrize("target", targets(PLUGIN), ids=str)
def test_the_gateway_answers_a_query_as_the_node_does(source: Source, target: Target) -> None:
    until_ms = past_second()
    for _ in range(50):
        before, found, after = (ask(target, until_ms) for ask in (source.ask_node, source.ask_gateway, source.ask_node))
        # statistics of the newest minute are of another one every second
        if without_present(before) == without_present(after):
            break
        time.sleep(0.2)
    assert without_present(found) == without_present(before)
    if target.body["format"] == "as-is":
        times, *series = found["data"]["values"]
        assert (len(times), times[1] - times[0]) == (200, 10)
        assert any(value for one in series for value in one)
    else:
        assert found[target.body["root_selector"]]


def past_second() -> int:
    """A second that is over, in ms."""
    return (int(time.time()) - 2) * 1000


def without_present(answer: Any) -> Any:
    """An answer without the history of the ring, which goes on, and the addresses of files at the node itself."""
    if "schema" in answer:
        meta = answer["schema"]["meta"]
        meta = {**meta, "custom": {**meta["custom"], "history": None}}
        return {**answer, "schema": {**answer["schema"], "meta": meta}}
    if "captures" in answer:
        return {**answer, "captures": [{**each, "url": None} for each in answer["captures"]]}
    return answer


def test_a_window_in_json_is_that_of_the_node(source: Source) -> None:
    until_ms = past_second()
    query = f"/api/v1/window?from={until_ms - 2000}&to={until_ms}&uncertainty=true"
    found, direct = (
        httpx.get(f"{base}{query}").json() for base in (f"{source.gateway}/node/{NODE}", source.daemon.url)
    )
    assert found.pop("history").keys() == direct.pop("history").keys()
    assert found == direct
    assert found["points"] == 200


def test_the_file_of_a_capture_is_that_of_the_node(source: Source) -> None:
    (capture,) = source.daemon.ask("/api/v1/captures").json()["captures"]
    # as the link of the board has it
    path = f"/api/v1/captures/{capture['name']}"
    found = httpx.get(f"{source.gateway}/node/{NODE}{path}")
    assert found.content == source.daemon.ask(path).content
    assert len(found.content) == capture["size_bytes"]


def test_the_data_source_of_the_page_may_ask_the_gateway_alone() -> None:
    (data_source,) = documented("datasources")["datasources"]
    allowed = data_source["jsonData"]["allowedHosts"]
    assert data_source["type"] == PLUGIN
    assert allowed == ["https://gateway:10056"]
    for target in targets(PLUGIN):
        url = fill(target.body["url"], {"scheme": "https", "gateway": "gateway:10056/node/", "instance": NODE})
        assert url.startswith(f"{allowed[0]}/node/{NODE}/api/v1/")


def test_the_board_offers_the_file_of_a_capture_below_the_same_address() -> None:
    board = (FOLDER / "bursts.json").read_text()
    assert "${scheme}://${gateway}${instance}/api/v1/captures/${__data.fields.File}" in board
