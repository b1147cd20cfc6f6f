"""Boards as Grafana documents: variables, links, and the positions of the panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from tools.grafana.panels import PROMETHEUS

NODE, BURSTS = "ibpulse-node", "ibpulse-bursts"
ALL = ".+"
Variable = Builder[model.VariableModel]
GRID_WIDTH = 24
TAG = "ibpulse"


def datasource() -> Variable:
    """Variable: the Prometheus data source."""
    return build.DatasourceVariable("datasource").label("Data source").type("prometheus")


def infinity(plugin: str) -> Variable:
    """Variable: the Infinity data source that queries the nodes."""
    return build.DatasourceVariable("infinity").label("Infinity data source").type(plugin)


def job(name: str = "job", label: str = "Job") -> Variable:
    """Variable: the scrape jobs of exporters."""
    return _labels(name, label, "label_values(ibpulse_build_info, job)")


def instance(name: str = "instance", label: str = "Instance", jobs: str = "job", single: bool = False) -> Variable:
    """Variable: nodes of the chosen jobs, any number or a `single` one."""
    query = f'label_values(ibpulse_build_info{{job=~"${jobs}"}}, instance)'
    return _labels(name, label, query, single)


def device() -> Variable:
    """Variable: devices of the chosen nodes."""
    query = 'label_values(ibpulse_port_info{job=~"$job",instance=~"$instance"}, device)'
    return _labels("device", "Device", query)


def choice(name: str, label: str, description: str, values: tuple[str, ...]) -> Variable:
    """Variable: one of a few values, the first by default."""
    options = [model.VariableOption(selected=not place, text=value, value=value) for place, value in enumerate(values)]
    variable = build.CustomVariable(name).label(label).description(description).values(",".join(values))
    return variable.options(options).current(options[0])


def text(name: str, label: str, description: str) -> Variable:
    """Variable: any text, none by default."""
    return build.TextBoxVariable(name).label(label).description(description).default_value("")


def board_links(own: Board, boards: Sequence[Board]) -> list[Builder[model.DashboardLink]]:
    """Links to the other boards that keep the time range and the variables."""
    return [
        build.DashboardLink(board.short_title)
        .type(model.DashboardLinkType.LINK)
        .url(f"/d/{board.uid}")
        .icon("dashboard")
        .tooltip(f"{board.short_title}, same time range and selection")
        .keep_time(True)
        .include_vars(True)
        for board in boards
        if board.uid != own.uid
    ]


def row_link(uid: str) -> str:
    """The address of a board for the node in a table row, at the current time range."""
    variables = "var-datasource=${datasource}&var-job=${__data.fields.job}&var-instance=${__data.fields.instance}"
    return f"/d/{uid}?${{__url_time_range}}&{variables}"


def series_link(uid: str) -> str:
    """The address of a board for the node of a series, at the current time range."""
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


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading, placed from left to right; without a title they are at the top of the board."""

    title: str
    panels: Sequence[model.Panel]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule of the dashboard linter that the board breaks on purpose; an empty panel means the board itself."""

    rule: str
    reason: str
    panel: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """A board. `question` is the question that its first screen answers."""

    uid: str
    title: str
    question: str
    variables: Sequence[Variable]
    sections: Sequence[Section]
    start: str = "now-1h"
    refresh: str = "30s"
    exceptions: Sequence[Breach] = ()
    alerts: str = ""

    @property
    def short_title(self) -> str:
        """The title without the name of the program."""
        return self.title.removeprefix("ibpulse / ")

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.uid.removeprefix("ibpulse-") + ".json"


def write_board(board: Board, boards: Sequence[Board]) -> model.Dashboard:
    """The document of a board, with links to the other `boards`."""
    document = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.question)
        .tags([TAG])
        .timezone("browser")
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time(board.start, "now")
        .refresh(board.refresh)
        .variables(list(board.variables))
        .links(board_links(board, boards))
    )
    if board.alerts:
        document.annotation(_alerts(board.alerts))
    built = document.build()
    built.panels = _place(board.sections)
    return built


def _place(sections: Sequence[Section]) -> list[model.Panel | model.RowPanel]:
    placed: list[model.Panel | model.RowPanel] = []
    number, top = 0, 0
    for section in sections:
        if section.title:
            number += 1
            row = model.RowPanel(section.collapsed, section.title, grid_pos=_position(top, 0, GRID_WIDTH, 1))
            row.id_val = number
            placed.append(row)
            top += 1
        bottom = _flow(section.panels, top)
        for panel in section.panels:
            number += 1
            panel.id_val = number
        if section.title and section.collapsed:
            row.panels = list(section.panels)
        else:
            placed += section.panels
            top = bottom
    return placed


def _flow(panels: Sequence[model.Panel], top: int) -> int:
    """Place the panels in lines from `top` downwards; return the first free height below them."""
    left, height = 0, 0
    for panel in panels:
        assert panel.grid_pos is not None
        if left + panel.grid_pos.w > GRID_WIDTH:
            left, top, height = 0, top + height, 0
        panel.grid_pos = _position(top, left, panel.grid_pos.w, panel.grid_pos.h)
        left, height = left + panel.grid_pos.w, max(height, panel.grid_pos.h)
    return top + height


def _position(top: int, left: int, width: int, height: int) -> model.GridPos:
    return model.GridPos(h=height, w=width, x=left, y=top)


def _alerts(expr: str) -> build.AnnotationQuery:
    return (
        build.AnnotationQuery()
        .name("Alerts")
        .datasource(PROMETHEUS)
        .enable(True)
        .hide(False)
        .icon_color("orange")
        .expr(expr)
        .title_format("{{alertname}}")
        .text_format("{{instance}} {{device}}")
        .step("60s")
    )
