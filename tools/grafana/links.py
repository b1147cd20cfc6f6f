"""Links between the boards, and to the pages of nodes and jobs, to boards about GPUs and to boards about nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from tools.grafana.queries import NODE_ADDRESS

KEPT = ("datasource", "scheme", "gateway")
"""Variables that a link from a row or a series takes along as they are."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page or board outside of this family, or several boards by their `tag` instead of an address."""

    title: str
    text: str
    url: str = ""
    tag: str = ""


LIVE_PAGE = Page("Live page", "The live page of the node, or of the gateway for this node", f"{NODE_ADDRESS}/")
JOB_PAGE = Page(
    "Job page",
    "The page of the job at the gateway, with one row per node; needs the variable Gateway",
    # the variable ends with the folder of the nodes
    "${scheme}://${gateway}../job/${job_id:percentencode}",
)
GPUS = Page(
    "GPUs (DCGM)",
    "The board of NVIDIA's dcgm-exporter, for the same instances",
    "/d/Oxed_c6Wz?${__url_time_range}&${instance:queryparam}",
)
NODES = Page(
    "Node exporter", "Boards about the node with the tag of the node exporter's mixin", tag="node-exporter-mixin"
)


def board_links(own: str, titles: Mapping[str, str]) -> list[Builder[model.DashboardLink]]:
    """Links to the other boards, by uid, that keep the time range and the variables."""
    return [
        build.DashboardLink(title)
        .type(model.DashboardLinkType.LINK)
        .url(f"/d/{uid}")
        .icon("dashboard")
        .tooltip(f"{title}, same time range and selection")
        .keep_time(True)
        .include_vars(True)
        for uid, title in titles.items()
        if uid != own
    ]


def page_links(pages: Sequence[Page]) -> list[Builder[model.DashboardLink]]:
    """Links to pages, in a new tab."""
    return [_page_link(page) for page in pages]


def row_link(uid: str, label: str = "instance") -> str:
    """The address of a board for the node (or the job, by the label `job_id`) in a table row."""
    return _address(uid, label, "${__data.fields.%s}")


def series_link(uid: str, label: str = "instance") -> str:
    """The address of a board for the node, or the job, of a series."""
    return _address(uid, label, "${__field.labels.%s}")


def _address(uid: str, label: str, value: str) -> str:
    chosen = {"cluster": value % "cluster", "job": value % "job", label: value % label}
    kept = {name: f"${{{name}}}" for name in KEPT}
    variables = "&".join(f"var-{name}={text}" for name, text in (kept | chosen).items())
    return f"/d/{uid}?${{__url_time_range}}&{variables}"


def _page_link(page: Page) -> build.DashboardLink:
    link = build.DashboardLink(page.title).icon("external link").tooltip(page.text).target_blank(True)
    if page.tag:
        return link.type(model.DashboardLinkType.DASHBOARDS).tags([page.tag]).as_dropdown(True).keep_time(True)
    return link.type(model.DashboardLinkType.LINK).url(page.url)
