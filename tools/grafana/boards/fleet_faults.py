"""What is wrong in the fleet: firing alerts, missing nodes, bad rails, errors of the day."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors, layout, links
from tools.grafana.boards.job_rails import trouble_table
from tools.grafana.colors import BAD_CELL, BAD_TEXT, NOTICE_CELL, NOTICE_TEXT
from tools.grafana.panels import Figure, Link, PanelHead, figure_panels, lines
from tools.grafana.queries import Query, Scope, by_node
from tools.grafana.tables import Column, table

S = Scope()
TOP = 20
WHOLE = "Recorded for whole scrape jobs: the Instance variable has no effect."
NO_RULES = "No recorded data: load the recording rules"
NO_NODES = "No node of this selection reports"
TO_NODE = Link("Open the node", links.row_link(layout.NODE))
FIRING = S.alerts(alertstate="firing")
PRESSING = S.alerts(alertstate="firing", severity="~critical|warning")
UP = S.pick("job:ibpulse_exporters_up:count")
MAX_UP = S.over("max_over_time", "job:ibpulse_exporters_up:count", "1d")
BAD, NOTICE = ((1, BAD_TEXT),), ((1, NOTICE_TEXT),)
FAULTS = {
    "Down": "down",
    "Missing": "missing",
    "Trained": "trained_down",
    "Idle": "idle",
    "Slow": "slow",
}
"""Faults of rails by heading, the worst first; the second is the name in the recordings."""
DAILY = {"Drops 24h": "link_events", "Errors 24h": "errors"}
"""What is summed over a day by heading, with its name in the recordings."""


def _sum(record: str) -> str:
    return f"sum({S.pick(record)})"


def _rails(kind: str) -> str:
    return _sum(f"job:ibpulse_{kind}_rails:sum")


FIGURES = (
    Figure(
        "Firing alerts",
        "Firing alerts of ibpulse, critical ones and warnings, each port, node or job counted; also 0 where no "
        "alerts are loaded. The variables Scrape job and Instance have no effect.",
        "none",
        f"count({PRESSING}) or 0 * {_sum('job:ibpulse_nodes:count')}",
        BAD,
    ),
    Figure(
        "Missing nodes",
        "Nodes without an exporter that answers: of those that should have one, if the rules know them "
        "(expected_nodes); otherwise, how many more answered at some time of the last 24 hours, so that a node "
        f"that was removed on purpose counts for a day. {WHOLE}",
        "none",
        f"sum({S.pick('cluster:ibpulse_missing_nodes:count')} or on (cluster) "
        f"sum by (cluster) (clamp_min({MAX_UP} - ({UP} or 0 * {MAX_UP}), 0)))",
        BAD,
    ),
    Figure(
        "Rails down",
        f"Rails whose link is not ACTIVE, and whose device is still there. {WHOLE}",
        "none",
        _rails("down"),
        BAD,
    ),
    Figure(
        "Rails missing",
        f"Rails that nodes should have and do not: the device disappeared, or lost its counters, or its role. {WHOLE}",
        "none",
        _rails("missing"),
        BAD,
    ),
    Figure(
        "Trained down",
        f"Rails that run at a lower rate than others of their make on the same node. {WHOLE}",
        "none",
        _rails("trained_down"),
        BAD,
    ),
    Figure(
        "Idle or slow",
        "Rails that carry less than a twentieth (idle) or three quarters (slow) of their siblings' median while the "
        f"siblings work. If half of the rails fail together, this shows nothing. {WHOLE}",
        "none",
        f"{_rails('idle')} + {_rails('slow')}",
        BAD,
    ),
    Figure(
        "Link drops 24h",
        "Times that a link went down in the last 24 hours, planned restarts included. A job usually dies if a link is "
        f"down for longer than its communication library waits. {WHOLE}",
        "none",
        f"round({_sum('job:ibpulse_link_events:increase1d')})",
        BAD,
    ),
    Figure(
        "Errors 24h",
        "Errors of links and packets in the last 24 hours: symbol errors, recoveries, bad packets, sequence errors, "
        "acknowledgement timeouts, drops. Some symbol errors are normal; what matters is a node that differs from the "
        f"others. {WHOLE}",
        "none",
        f"round({_sum('job:ibpulse_errors:increase1d')})",
        NOTICE,
    ),
)


def fault_panels() -> list[model.Panel]:
    """The first screen: numbers, alerts, nodes and rails with a fault."""
    return [*figure_panels(FIGURES, NO_RULES), _alerts(), _newest(), _nodes(), _rails_now()]


def _severity() -> str:
    ranks = {"critical": 3, "warning": 2, "info": 1}
    counts = (
        f"{rank} * (count by (alertname) ({S.alerts(alertstate='firing', severity=severity)}) > bool 0)"
        for severity, rank in ranks.items()
    )
    return " or ".join(counts)


def _alerts() -> model.Panel:
    began = f"1000 * max by (alertname) ({S.alerts('ALERTS_FOR_STATE')} and ignoring (alertstate) {FIRING})"
    ranks = {"3": ("critical", BAD_CELL), "2": ("warning", NOTICE_CELL), "1": ("info", "transparent")}
    return table(
        PanelHead(
            "Which alerts fire?",
            "Every alert of ibpulse that fires now, with the number of ports, nodes or jobs that it fires for, and the "
            "time since the newest of them began. The runbook of an alert has the same name.",
            "none",
            "No alert fires",
            width=12,
            height=9,
        ),
        [
            Column("Severity", _severity(), "none", ((1, "transparent"), (2, NOTICE_CELL), (3, BAD_CELL)), 90),
            Column("Firing", f"count by (alertname) ({FIRING})", "none", width=80),
            Column("Newest began", began, "dateTimeFromNow", width=170),
        ],
        {"alertname": "Alert"},
        sort=("Severity", "Firing"),
        words={"Severity": colors.texts(ranks)},
        values_first=True,
    )


def _newest() -> model.Panel:
    labels = {"alertname": "Alert", "instance": "Node", "device": "Device", "job_id": "Training job"}
    kept = ", ".join([*labels, "cluster", "job"])
    began = f"max by ({kept}) ({S.alerts('ALERTS_FOR_STATE')})"
    firing = f"max by ({kept}) ({FIRING})"
    return table(
        PanelHead(
            "Which alerts began last?",
            f"The {TOP} alerts that began last and still fire. Click a node to open its board at this time.",
            "none",
            "No alert fires",
            width=12,
            height=9,
        ),
        [Column("Began", f"topk({TOP}, 1000 * {began} and on ({kept}) {firing})", "dateTimeFromNow", width=130)],
        labels,
        sort=("Began",),
        link=TO_NODE,
        linked="Node",
        widths={"Device": 90, "Training job": 100, "Node": 130},
        values_first=True,
    )


def _nodes() -> model.Panel:
    silent = by_node("max", S.pick("ALERTS", alertname="IBPulseUnreliable", alertstate="firing"))
    columns = [Column("Unreliable", silent, "none", ((1, BAD_CELL),), 100)]
    columns += [Column("Bad rails", f"{_of('bad')} > 0", "none", ((1, BAD_CELL),), 92)]
    columns += [
        Column(heading, f"{_of(kind)} > 0", "none", ((1, NOTICE_CELL),), 66) for heading, kind in FAULTS.items()
    ]
    for heading, kind in DAILY.items():
        expr = f"topk({TOP}, round({by_node('max', S.pick(f'instance:ibpulse_{kind}:increase1d'))}) > 0)"
        columns.append(Column(heading, expr, "none", ((1, NOTICE_CELL),), 88))
    return table(
        PanelHead(
            "Which nodes have a fault?",
            "Only nodes that are not measured, or whose numbers cannot be trusted (1, once IBPulseUnreliable fires), "
            "those with a bad rail (down, missing, trained down, idle or slow), and those with most link drops and "
            "errors in 24 hours. A dash means none; in the last two columns "
            f"also: not among the {TOP} highest. Click a node to open its board.",
            "none",
            "Every node is measured; none has a bad rail, a link drop or an error",
            width=16,
            height=11,
        ),
        columns,
        {"instance": "Node"},
        sort=("Unreliable", "Bad rails"),
        link=TO_NODE,
    )


def _of(kind: str) -> str:
    return by_node("max", S.pick(f"instance:ibpulse_{kind}_rails:sum"))


def _rails_now() -> model.Panel:
    return trouble_table(
        PanelHead(
            "Which rails are in trouble now?",
            "Only rails that are down, trained down, or idle or slow while their siblings work, with the worst "
            "state of each. Rails that are missing have no row: see the nodes. Click a node to open its board. An "
            "empty table is the good case. Storage and management ports are excluded.",
            "none",
            "No rail is down, trained down, idle or slow",
            width=8,
            height=11,
        ),
        S,
    )


def fault_history() -> list[model.Panel]:
    """Bad rails and exporters over time."""
    return [
        lines(
            PanelHead(
                "How many rails were bad?",
                f"Rails of all nodes by fault; a rail may have several. And the nodes that have any such rail. {WHOLE}",
                "none",
                NO_RULES,
                width=12,
            ),
            [
                *(Query(_rails(kind), kind.replace("_", " ")) for kind in FAULTS.values()),
                Query(_rails("bad"), "any of these"),
                Query(_sum("job:ibpulse_bad_nodes:count"), "nodes"),
            ],
        ),
        lines(
            PanelHead(
                "How many exporters answered?",
                f"Exporters that should be scraped, and those that can be. {WHOLE}",
                "none",
                NO_RULES,
                width=12,
            ),
            [Query(_sum("job:ibpulse_exporters:count"), "known"), Query(f"sum({UP})", "answering")],
        ),
    ]
