"""The rails of a training job: those in trouble, and each position on all nodes together."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors, layout, links
from tools.grafana.colors import BAD_CELL, NOTICE_CELL
from tools.grafana.panels import Link, PanelHead, lines
from tools.grafana.queries import Query, Scope, by_port
from tools.grafana.tables import Column, table

RAIL = "{{device}}:{{port}}"
RAIL_STATES = {
    "4": ("down", BAD_CELL),
    "3": ("trained down", BAD_CELL),
    "2": ("idle", BAD_CELL),
    "1": ("slow", NOTICE_CELL),
}
"""States of a rail in trouble by the number that is recorded."""


def trouble_table(head: PanelHead, scope: Scope) -> model.Panel:
    """The rails of the scope that are in trouble, the worst first."""
    state = by_port("max", scope.pick("instance_device_port:ibpulse_bad_rail:state"))
    return table(
        head,
        [Column("State", state, "none", ((1, NOTICE_CELL), (2, BAD_CELL)), 120)],
        {"instance": "Node", "device": "Device", "port": "Port"},
        sort=("State",),
        link=Link("Open the node", links.row_link(layout.NODE)),
        words={"State": colors.texts(RAIL_STATES)},
        widths={"Device": 100, "Port": 60},
        values_first=True,
    )


def rails_in_trouble(scope: Scope) -> model.Panel:
    """The rails of the nodes of a job that are in trouble."""
    return trouble_table(
        PanelHead(
            "Which rails are in trouble now?",
            "Rails of the nodes of the job that are down, trained down, idle or slow, with the worst state of each, "
            "those of other jobs on the same nodes included. Empty is the good case.",
            "none",
            "No rail is down, trained down, idle or slow, or nothing is known of the job",
            width=8,
        ),
        scope,
    )


def rail_panels(scope: Scope, nothing: str) -> list[model.Panel]:
    """Each rail position on all nodes of a job, compared with the others."""
    bandwidth = scope.pick("instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m")
    return [
        lines(
            PanelHead(
                "Which rail carries less on all nodes?",
                "Mean of the nodes for each device and port of the job, transmit + receive. A rail that carries "
                "less on all nodes is a matter of the fabric or of the job; less on one node is a matter of that "
                "node.",
                "Bps",
                nothing,
                width=8,
            ),
            [Query(f"avg by (device, port) ({bandwidth})", RAIL)],
        ),
        lines(
            PanelHead(
                "Which rail carries less on one node?",
                "For each device and port, the bandwidth on the node where it is lowest ÷ the mean of the nodes. "
                "One line far below the others: one node has a slow rail there.",
                "percentunit",
                nothing,
                width=8,
            ),
            [Query(f"min by (device, port) ({bandwidth}) / avg by (device, port) ({bandwidth})", RAIL)],
        ),
    ]
