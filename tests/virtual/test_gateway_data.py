"""The data of a node through a gateway, and the burst explorer's queries: what the node itself says, byte by byte."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.gateway.gateways import documented
from tests.grafana.documents import FOLDER, Target, fill, targets
from tests.tables import for_each
from tests.virtual.fleet import Fleet
from tests.virtual.world import START_NS
from tools.grafana.queries import PLUGIN

NODE = "node-0"
BEGIN_MS = START_NS // 1_000_000
SPAN = f"from={BEGIN_MS + 4000}&to={BEGIN_MS + 6000}"


@pytest.fixture(scope="module")
def fleet(shared_folder: Path) -> Iterator[Fleet]:
    """A node with a capture and eight seconds of samples, without those of three ticks."""
    with Fleet(shared_folder, 1, "--capture.allow-unauthenticated=true", workload="moe") as made:
        made.nodes[0].late_by({BEGIN_MS // 10 + 500: 25_000_000})
        made.run(6)
        made.nodes[0].post("/api/v1/captures", {"before": "1s", "after": "10ms"})
        made.run(2)
        yield made


@for_each(
    [
        *("ports", "topology", "jobs", "captures", "clock", "events?kind=started&kind=link-up", "summary?last=1s"),
        *(f"window?{SPAN}&port=mlx5_0&port=mlx5_1:1&format={wanted}" for wanted in ("json", "grafana")),
        *(f"window?{SPAN}&uncertainty=true", f"window?{SPAN}&unit=ratio&statistic=mean&format=json"),
    ]
)
def test_what_the_node_says_is_what_the_gateway_says(path: str, fleet: Fleet) -> None:
    found = fleet.ask(f"/node/{NODE}/api/v1/{path}")
    assert (found.status_code, found.headers["content-type"]) == (200, "application/json")
    assert without_addresses(found.json()) == without_addresses(fleet.nodes[0].get(f"/api/v1/{path}"))


def test_an_array_of_a_window_is_that_of_the_node(fleet: Fleet) -> None:
    path = f"api/v1/window?{SPAN}"
    array = fleet.ask(f"/node/{NODE}/{path}&format=npy")
    assert json.loads(array.headers["x-ibpulse-window"])["points"] == 200
    direct = np.load(io.BytesIO(fleet.nodes[0].ask(f"/{path}&format=npy").content))
    np.testing.assert_array_equal(np.load(io.BytesIO(array.content)), direct)
    # the samples of three ticks are missing, so four rates are not known
    assert np.isnan(direct).sum(axis=1).tolist() == [4] * 4


def test_the_file_of_a_capture_is_that_of_the_node(fleet: Fleet) -> None:
    (capture,) = fleet.nodes[0].get("/api/v1/captures")["captures"]
    path = f"/api/v1/captures/{capture['name']}"
    found = fleet.ask(f"/node/{NODE}{path}").content
    assert found == fleet.nodes[0].ask(path).content
    assert len(found) == capture["size_bytes"]


def ask(fleet: Fleet, target: Target, **places: str) -> httpx.Response:
    """The answer to a query of the board about two seconds."""
    times = {"__timeFrom": str(BEGIN_MS + 4000), "__timeTo": str(BEGIN_MS + 6000)}
    url = fill(target.body["url"], {"scheme": "http", **places})
    params = {each["key"]: fill(each["value"], times) for each in target.body["url_options"]["params"]}
    return fleet.ask(url, **params)


@for_each({str(target): target for target in targets(PLUGIN)})
def test_the_gateway_answers_a_query_of_the_board_as_the_node_does(target: Target, fleet: Fleet) -> None:
    direct = ask(fleet, target, gateway="", instance=NODE)
    found = ask(fleet, target, gateway="gateway/node/", instance=NODE)
    assert (found.status_code, direct.status_code) == (200, 200)
    assert without_addresses(found.json()) == without_addresses(direct.json())
    if target.body["format"] == "as-is":
        times, *series = found.json()["data"]["values"]
        assert times == list(range(BEGIN_MS + 4000, BEGIN_MS + 6000, 10))
        assert any(value for one in series for value in one)
        assert [one.count(None) for one in series] == [4] * len(series)
    else:
        items = found.json()[target.body["root_selector"]]
        assert items
        assert [item for item in items for column in target.body["columns"] if not has(item, column["selector"])] == []


def has(item: dict[str, Any], selector: str) -> bool:
    """Whether an item of an answer has the member that a column shows."""
    first, _, rest = selector.partition(".")
    return first in item and (not rest or has(item[first], rest))


def without_addresses(answer: Any) -> Any:
    """An answer without the addresses of files at the node itself."""
    if "captures" in answer:
        return {**answer, "captures": [{**each, "url": None} for each in answer["captures"]]}
    return answer


def test_the_data_source_of_the_page_may_ask_the_gateway_alone() -> None:
    (data_source,) = documented("datasources", "dashboards.md")["datasources"]
    allowed = data_source["jsonData"]["allowedHosts"]
    assert data_source["type"] == PLUGIN
    assert allowed == ["https://gateway:10056"]
    for target in targets(PLUGIN):
        url = fill(target.body["url"], {"scheme": "https", "gateway": "gateway:10056/node/", "instance": NODE})
        assert url.startswith(f"{allowed[0]}/node/{NODE}/api/v1/")


def test_the_board_offers_the_file_of_a_capture_below_the_same_address() -> None:
    board = (FOLDER / "bursts.json").read_text()
    assert "${scheme}://${gateway}${instance}/api/v1/captures/${__data.fields.File}" in board
