"""Queries of the panels: PromQL from the table of metrics, and the node's own API through Infinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common

from tools.grafana.rule_levels import NODE, PORT
from tools.grafana.series_names import RECORDED, check_labels, labels_of, level_of

RATE = "$__rate_interval"
RANGE = "$__range"
PLUGIN = "yesoreyeram-infinity-datasource"
INFINITY = common.DataSourceRef(type_val=PLUGIN, uid="$infinity")
NODE_ADDRESS = "${scheme}://${gateway}${instance}"
"""The address of a node's API and page: its own, or that below a gateway, whose variable ends with a slash."""
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

    cluster: str = "$cluster"
    job: str = "$job"
    instance: str = "$instance"
    device: str = ""
    job_id: str = ""
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

    def on_rails(self, expr: str) -> str:
        """Values of ports that are rails."""
        return f"({expr}) * on ({PORT}) group_left () {by_port('max', self.pick('ibpulse_port_info', rail='true'))}"

    def line_rate(self) -> str:
        """The line rate of each node: all rails, both directions together, in bytes per second."""
        return by_node("max", self.pick("ibpulse_node_line_rate_bytes_per_second"))

    def bandwidth(self, window: str = "1m") -> str:
        """Mean bandwidth (transmit + receive of all rails) of each node in a window."""
        directions = (f"ibpulse_node_{direction}_bytes_per_second" for direction in ("transmit", "receive"))
        return "(" + " + ".join(by_node("max", self.pick(name, window=window)) for name in directions) + ")"

    def alerts(self, name: str = "ALERTS", **labels: str) -> str:
        """The alerts of ibpulse, without regard to scrape job and node, which those about jobs do not have."""
        everywhere = replace(self, job="", instance="", device="")
        return everywhere.pick(name, alertname="~IBPulse.+", **labels)

    def alerts_of_job(self, **labels: str) -> str:
        """The alerts about the chosen training job; none where no job is known."""
        known = self.pick("job_id:ibpulse_nodes:count")
        return f"({self.alerts(job_id=f'~{self.job_id}', **labels)} and on (cluster, job, job_id) {known})"

    def silence(self) -> str:
        """How long each training job had been silent when its last traffic was recorded, up to a minute ago."""
        recorded = self.pick("job_id:ibpulse_last_traffic_timestamp_seconds:max")
        return f"timestamp({recorded}) - {recorded}"

    def buckets(self, name: str, function: str = "increase", by: str = "") -> str:
        """The summed buckets of a histogram, whether scraped as a classic one or converted to a native one."""
        kept = ", ".join(filter(None, (by, "le")))
        classic = f"sum by ({kept}) ({self.over(function, name + '_bucket')})"
        return f"{classic} or on ({by}) sum by ({by}) ({self.over(function, name)})"

    def time_share(self, name: str) -> str:
        """The share of the time in each bucket of a histogram of samples, mean of the nodes or ports; either form."""
        seconds = f"scalar(max({self.pick('ibpulse_sampler_interval_seconds')}))"
        classic = f"{seconds} * avg by (le) ({self.rate(name + '_bucket')})"
        return f"{classic} or on () {seconds} * avg({self.rate(name)})"

    def quantile(self, level: float, name: str, by: str = NODE) -> str:
        """A quantile of a histogram, interpolated inside its bucket."""
        return f"histogram_quantile({level:g}, {self.buckets(name, 'rate', by)})"

    def mean(self, name: str, by: str = NODE) -> str:
        """The mean of a classic histogram; functions of native ones make VictoriaMetrics refuse the whole query."""
        total, count = (f"sum by ({by}) ({self.over('rate', name + part)})" for part in ("_sum", "_count"))
        return f"{total} / {count}"

    def _selector(self, name: str, labels: dict[str, str]) -> str:
        check_labels(name, set(labels))
        level = level_of(name) if name in RECORDED else ["instance"]
        # whatever is recorded keeps the cluster, and all but the sums over clusters the scrape job
        own = {"cluster": self.cluster, "job": self.job if level != ["cluster"] else ""}
        own["instance"] = self.instance if "instance" in level else ""
        matchers = [f'{label}=~"{value}"' for label, value in own.items() if value]
        for label, value in {"device": self.device, "job_id": self.job_id}.items():
            # an alert about a node has neither
            if value and label in labels_of(name) and not name.startswith("ALERTS"):
                matchers.append(f'{label}=~"{value}"')
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
