"""Queries through the Infinity data source, which asks a node's own API. It must not know any panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common

PLUGIN = "yesoreyeram-infinity-datasource"
INFINITY = common.DataSourceRef(type_val=PLUGIN, uid="$infinity")
NODE_ADDRESS = "${scheme}://${instance}"
TIMES = {"from": "${__timeFrom}", "to": "${__timeTo}"}
MAX_POINTS = 2000


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table: where it stands in an item of the answer, its heading, and what its values are."""

    selector: str
    text: str
    kind: str = "number"


class InfinityQuery(Dataquery, Builder[Dataquery]):
    """A query of an address; the SDK has no builder for this plugin."""

    def __init__(self, ref_id: str, path: str, params: Mapping[str, str], root: str = "") -> None:
        self._payload: dict[str, object] = {
            "refId": ref_id,
            "datasource": INFINITY,
            "type": "json",
            "source": "url",
            "url": NODE_ADDRESS + path,
            "url_options": {
                "method": "GET",
                "data": "",
                "params": [{"key": key, "value": value} for key, value in params.items()],
            },
            "root_selector": root,
            "parser": "simple",
            "filters": [],
            # as it is: the answer is a data frame of Grafana's own form already
            "format": "as-is",
            "columns": [],
        }

    def as_table(self, columns: Sequence[Field]) -> InfinityQuery:
        """The same, as a table of items of the answer."""
        self._payload["format"] = "table"
        self._payload["columns"] = [
            {"selector": column.selector, "text": column.text, "type": column.kind} for column in columns
        ]
        return self

    def build(self) -> Dataquery:
        """The query itself."""
        return self

    def to_json(self) -> dict[str, object]:
        """What the encoder writes."""
        return self._payload


def window_query(ref_id: str = "A", **params: str) -> InfinityQuery:
    """The raw window of the node at the board's time, as a data frame."""
    given = {**TIMES, "max_points": str(MAX_POINTS), **params, "format": "grafana"}
    return InfinityQuery(ref_id, "/api/v1/window", given)
