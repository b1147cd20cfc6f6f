"""The variables of the boards and the links between them. It must not know what a board shows."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from ibpulse.grafana.panels import PROMETHEUS

FLEET, NODE, COMPARISON, BURSTS, EXPORTER = (
    f"ibpulse-{name}" for name in ("fleet", "node", "comparison", "bursts", "exporter")
)
ALL = ".+"
Variable = Builder[model.VariableModel]


def datasource() -> Variable:
    """Which Prometheus is asked."""
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def infinity(plugin: str) -> Variable:
    """Which Infinity data source asks the nodes."""
    return build.DatasourceVariable("infinity").label("Infinity data source").type(plugin)


def job(name: str = "job", label: str = "Job") -> Variable:
    """Jobs of exporters."""
    return _labels(name, label, "label_values(ibpulse_build_info, job)")


def instance(name: str = "instance", label: str = "Instance", jobs: str = "job", single: bool = False) -> Variable:
    """Nodes of the chosen jobs: any number, or a `single` one."""
    query = f'label_values(ibpulse_build_info{{job=~"${jobs}"}}, instance)'
    return _labels(name, label, query, single)


def device() -> Variable:
    """Devices of the chosen nodes."""
    query = 'label_values(ibpulse_port_info{job=~"$job",instance=~"$instance"}, device)'
    return _labels("device", "Device", query)


def choice(name: str, label: str, description: str, values: tuple[str, ...]) -> Variable:
    """One of a few values, the first by default."""
    options = [model.VariableOption(selected=not place, text=value, value=value) for place, value in enumerate(values)]
    variable = build.CustomVariable(name).label(label).description(description).values(",".join(values))
    return variable.options(options).current(options[0])


def board_links(own: str) -> list[Builder[model.DashboardLink]]:
    """Links to the other boards, which keep the time and the variables."""
    titles = {
        FLEET: "Fleet",
        NODE: "Node",
        COMPARISON: "Dense and MoE",
        BURSTS: "Burst explorer",
        EXPORTER: "Exporter health",
    }
    return [
        build.DashboardLink(title)
        .type(model.DashboardLinkType.LINK)
        .url(f"/d/{uid}")
        .icon("dashboard")
        .tooltip(f"{title}, of the same time and the same selection")
        .keep_time(True)
        .include_vars(True)
        for uid, title in titles.items()
        if uid != own
    ]


def row_link(uid: str) -> str:
    """The address of a board about the node of a table's row, at the time that is shown."""
    variables = "var-datasource=${datasource}&var-job=${__data.fields.job}&var-instance=${__data.fields.instance}"
    return f"/d/{uid}?${{__url_time_range}}&{variables}"


def series_link(uid: str) -> str:
    """The address of a board about the node of a series, at the time that is shown."""
    labels = "${__field.labels.%s}"
    variables = f"var-datasource=${{datasource}}&var-job={labels % 'job'}&var-instance={labels % 'instance'}"
    return f"/d/{uid}?${{__url_time_range}}&{variables}"


def _labels(name: str, label: str, query: str, single: bool = False) -> Variable:
    variable = (
        build.QueryVariable(name)
        .label(label)
        .query(query)
        .definition(query)
        .datasource(PROMETHEUS)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(not single)
        .include_all(not single)
    )
    return variable if single else variable.all_value(ALL)
