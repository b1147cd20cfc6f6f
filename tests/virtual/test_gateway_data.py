"""The burst explorer's queries through a gateway: what the node itself says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.gateways import documented
from tests.grafana.documents import Target, fill, targets
from tests.tables import for_each
from tests.virtual.fleet import Fleet
from tests.virtual.world import START_NS
from tools.grafana.queries import PLUGIN

NODE = "node-0"
BEGIN_MS = START_NS // 1_000_000


@pytest.fixture(scope="module")
def fleet(shared_folder: Path) -> Iterator[Fleet]:
    """A node with a capture and eight seconds of samples, without those of three ticks."""
    with Fleet(shared_folder, 1, "--capture.allow-unauthenticated=true", workload="moe") as made:
        made.nodes[0].late_by({BEGIN_MS // 10 + 500: 25_000_000})
        made.run(6)
        made.nodes[0].post("/api/v1/captures", {"before": "1s", "after": "10ms"})
        made.run(2)
        yield made


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
