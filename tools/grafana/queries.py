"""Queries of the panels: PromQL from the table of metrics, and the node's own API through Infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common

from tools.grafana.recording_rules import NODE, PORT
from tools.grafana.series_names import RECORDED, check_labels, labels_of, level_of

RATE = "$__rate_interval"
RANGE = "$__range"
PLUGIN = "yesoreyeram-infinity-datasource"
INFINITY = common.DataSourceRef(type_val=PLUGIN, uid="$infinity")
NODE_ADDRESS = "${scheme}://${gateway}${instance}"
TIMES = {"from": "${__timeFrom}", "to": "${__timeTo}"}
MAX_POINTS = 2000


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel. `legend` names its series; `instant` asks for one moment, `heatmap` for buckets."""

    expr: str
    legend: str = "{{instance}}"
    instant: bool = False
    heatmap: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables of a board that choose its series; `shift` is an offset in time, if there is one."""

    job: str = "$job"
    instance: str = "$instance"
    device: str = ""
    shift: str = ""

    def pick(self, name: str, **labels: str) -> str:
        """The newest value of a metric or of a recording; a label value with a leading `~` is a pattern."""
        return self._selector(name, labels) + self._offset()

    def over(self, function: str, name: str, span: str = RATE, parameter: str = "", **labels: str) -> str:
        """A function over a span of the metric, such as `max_over_time`; `parameter` is its first argument."""
        first = f"{parameter}, " if parameter else ""
        return f"{function}({first}{self._selector(name, labels)}[{span}]{self._offset()})"

    def rate(self, name: str, **labels: str) -> str:
        """The rate of a counter per second."""
        return self.over("rate", name, **labels)

    def rails(self) -> str:
        """1 for each port that is a rail."""
        return f"max by ({PORT}) ({self.pick('ibpulse_port_info', rail='true')})"

    def on_rails(self, expr: str) -> str:
        """Values of ports that are rails."""
        return f"({expr}) * on ({PORT}) group_left () {self.rails()}"

    def line_rate(self) -> str:
        """The line rate of each node: all rails, both directions together, in bytes per second."""
        return by_node("max", self.pick("ibpulse_node_line_rate_bytes_per_second"))

    def bandwidth(self, window: str = "1m") -> str:
        """Mean bandwidth (transmit + receive of all rails) of each node in a window."""
        directions = (f"ibpulse_node_{direction}_bytes_per_second" for direction in ("transmit", "receive"))
        return "(" + " + ".join(self.pick(name, window=window) for name in directions) + ")"

    def buckets(self, name: str, function: str = "increase", by: str = "") -> str:
        """The summed buckets of a histogram, whether scraped as a classic one or converted to a native one."""
        kept = ", ".join(filter(None, (by, "le")))
        classic = f"sum by ({kept}) ({self.over(function, name + '_bucket')})"
        return f"{classic} or on ({by}) sum by ({by}) ({self.over(function, name)})"

    def quantile(self, level: float, name: str, by: str = NODE) -> str:
        """A quantile of a histogram, interpolated inside its bucket."""
        return f"histogram_quantile({level:g}, {self.buckets(name, 'rate', by)})"

    def mean(self, name: str, by: str = NODE) -> str:
        """The mean of a histogram, classic or native."""
        total, count = (f"sum by ({by}) ({self.over('rate', name + part)})" for part in ("_sum", "_count"))
        native = f"sum by ({by}) ({self.over('rate', name)})"
        return f"({total} / {count}) or on ({by}) (histogram_sum({native}) / histogram_count({native}))"

    def count(self, name: str, by: str = NODE) -> str:
        """Observations of a histogram per second, classic or native."""
        native = f"histogram_count(sum by ({by}) ({self.over('rate', name)}))"
        return f"sum by ({by}) ({self.over('rate', name + '_count')}) or on ({by}) {native}"

    def _selector(self, name: str, labels: dict[str, str]) -> str:
        check_labels(name, set(labels))
        matchers = [f'job=~"{self.job}"']
        if name not in RECORDED or "instance" in level_of(name):
            matchers.append(f'instance=~"{self.instance}"')
        if self.device and "device" in labels_of(name):
            matchers.append(f'device=~"{self.device}"')
        for label, value in labels.items():
            matchers.append(f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"')
        return f"{name}{{{','.join(matchers)}}}"

    def _offset(self) -> str:
        return f" offset {self.shift}" if self.shift else ""


def by_node(function: str, expr: str) -> str:
    """An aggregation to one value for each node."""
    return f"{function} by ({NODE}) ({expr})"


def by_port(function: str, expr: str) -> str:
    """An aggregation to one value for each port."""
    return f"{function} by ({PORT}) ({expr})"


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table: its selector in an item of the answer, its heading, and the type of its values."""

    selector: str
    text: str
    kind: str = "number"


class InfinityQuery(Dataquery, Builder[Dataquery]):
    """A query to an address; the SDK has no builder for this plugin."""

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
            # the answer already is a Grafana data frame
            "format": "as-is",
            "columns": [],
        }

    def as_table(self, columns: Sequence[Field]) -> InfinityQuery:
        """The same query, with the items of the answer as a table."""
        self._payload["format"] = "table"
        self._payload["columns"] = [
            {"selector": column.selector, "text": column.text, "type": column.kind} for column in columns
        ]
        return self

    def build(self) -> Dataquery:
        """The query itself, as the SDK's builders return it."""
        return self

    def to_json(self) -> dict[str, object]:
        """The JSON that the SDK's encoder writes."""
        return self._payload


def window_query(ref_id: str = "A", **params: str) -> InfinityQuery:
    """The raw window of the node at the board's time range, as a data frame."""
    given = {**TIMES, "max_points": str(MAX_POINTS), **params, "format": "grafana"}
    return InfinityQuery(ref_id, "/api/v1/window", given)
