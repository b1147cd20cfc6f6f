"""The variables of the boards."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from tools.grafana.panels import PROMETHEUS

ALL = ".+"
# a Prometheus of its own for each cluster usually sets no such label
ANY = ".*"
Variable = Builder[model.VariableModel]


def datasource() -> Variable:
    """Variable: the Prometheus data source."""
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def infinity(plugin: str) -> Variable:
    """Variable: the Infinity data source that queries the nodes."""
    return build.DatasourceVariable("infinity").label("Infinity data source").type(plugin)


def cluster(name: str = "cluster", label: str = "Cluster", single: bool = False) -> Variable:
    """Variable: clusters, any number or a `single` one; empty where no series has the label."""
    return _labels(name, label, "label_values(ibpulse_build_info, cluster)", single, ANY)


def job(name: str = "job", label: str = "Scrape job", clusters: str = "cluster", listed: bool = False) -> Variable:
    """Variable: the scrape jobs of exporters; `listed`, all of them is a list, for series that others have too."""
    query = f'label_values(ibpulse_build_info{{cluster=~"${clusters}"}}, job)'
    return _labels(name, label, query, everything="" if listed else ALL)


def instance(
    name: str = "instance",
    label: str = "Instance",
    jobs: str = "job",
    clusters: str = "cluster",
    single: bool = False,
) -> Variable:
    """Variable: nodes of the chosen scrape jobs, any number or a `single` one."""
    query = f'label_values(ibpulse_build_info{{cluster=~"${clusters}",job=~"${jobs}"}}, instance)'
    return _labels(name, label, query, single)


def device() -> Variable:
    """Variable: devices of the chosen nodes."""
    query = 'label_values(ibpulse_port_info{cluster=~"$cluster",job=~"$job",instance=~"$instance"}, device)'
    return _labels("device", "Device", query)


def training_job(name: str = "job_id", label: str = "Training job", jobs: str = "job") -> Variable:
    """Variable: one training job that owned ports in the time range."""
    query = f'label_values(job_id:ibpulse_nodes:count{{cluster=~"$cluster",job=~"${jobs}"}}, job_id)'
    return _labels(name, label, query, single=True)


def node_of_job() -> Variable:
    """Variable: nodes of the chosen training job; all of them is a list, so that no other node is read."""
    query = 'label_values(ibpulse_port_job_info{cluster=~"$cluster",job=~"$job",job_id=~"$job_id"}, instance)'
    return _labels("instance", "Instance", query, everything="")


def choice(name: str, label: str, description: str, values: dict[str, str]) -> build.CustomVariable:
    """Variable: one of a few values by the words for them, the first by default."""
    options = [
        model.VariableOption(selected=not place, text=text, value=value)
        for place, (text, value) in enumerate(values.items())
    ]
    written = ", ".join(value if text == value else f"{text} : {value}" for text, value in values.items())
    variable = build.CustomVariable(name).label(label).description(description).values(written)
    return variable.options(options).current(options[0])


def node_address(shown: bool = True) -> list[Variable]:
    """Variables: where pages and raw samples of nodes are; a board that only passes them on need not show them."""
    hide = model.VariableHide.DONT_HIDE if shown else model.VariableHide.HIDE_VARIABLE
    schemes = choice("scheme", "Scheme", "Scheme of the nodes, or of the gateway.", {"http": "http", "https": "https"})
    gateway = (
        build.TextBoxVariable("gateway")
        .label("Gateway")
        .description("Where a gateway has the nodes, such as gateway:10056/node/; empty to ask each node itself.")
        .default_value("")
    )
    return [schemes.hide(hide), gateway.hide(hide)]


def _labels(name: str, label: str, query: str, single: bool = False, everything: str = ALL) -> Variable:
    variable = (
        build.QueryVariable(name)
        .label(label)
        .query(query)
        .definition(query)
        .datasource(PROMETHEUS)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )
    if single:
        return variable
    # without a value of its own, Grafana opens with the first option and not with all of them
    all_of_them = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    variable = variable.multi(True).include_all(True).current(all_of_them)
    return variable.all_value(everything) if everything else variable
