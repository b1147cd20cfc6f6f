"""One training job on all its nodes: who is behind, who stopped first, and its rails."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors, layout, links, marks, variables
from tools.grafana.boards.job_rails import rail_panels, rails_in_trouble
from tools.grafana.colors import BAD_CELL, BAD_TEXT, NOTICE_CELL, NOTICE_TEXT
from tools.grafana.layout import Board, Section
from tools.grafana.panels import Figure, Link, PanelHead, heat, lines, status_row
from tools.grafana.queries import Query, Scope, by_node
from tools.grafana.rule_levels import JOB, NODE, NODE_OF_JOB
from tools.grafana.tables import Column, table

S = Scope(job_id="$job_id")
UNKNOWN = "Nothing is known of this job in this span: choose one, or see docs/jobs.md"
TOP = 10
TO_NODE = Link("Open the node", links.row_link(layout.NODE))
RATIO = S.pick("instance_job_id:ibpulse_active_bandwidth_to_median:ratio")
STOPPED = S.pick("instance_job_id:ibpulse_stopped_early:seconds")
STEP = f"max by ({NODE_OF_JOB}) ({S.pick('ibpulse_job_step_period_seconds')} > 0)"
NODES = S.pick("job_id:ibpulse_nodes:count")
SILENT = S.silence()
CLOCKS = "Times of nodes differ by the error of their clocks, which the gateway measures."

FIRING = {"alertstate": "firing", "severity": "~critical|warning"}

STATE = (
    Figure("Nodes", "nodes on which the job owns a port.", "none", f"max({NODES})"),
    Figure(
        "Behind",
        "nodes whose bandwidth while active is below 85 % of that of the median node.",
        "none",
        f"count({RATIO} < 0.85) or 0 * count({RATIO})",
        ((1, BAD_TEXT),),
    ),
    Figure(
        "Silent",
        "time since the last traffic on any node; a checkpoint is silent too.",
        "s",
        f"max({SILENT})",
        ((60, NOTICE_TEXT), (180, BAD_TEXT)),
    ),
    Figure(
        "Bad rails",
        "rails of these nodes that are down, missing, trained down, idle or slow, those of other jobs included.",
        "none",
        f"sum({S.pick('instance:ibpulse_bad_rails:sum')})",
        ((1, BAD_TEXT),),
    ),
    Figure(
        "Firing alerts",
        "critical ones and warnings about the job or its nodes; also 0 where no alerts are loaded.",
        "none",
        f"count({S.pick('ALERTS', alertname='~IBPulse.+', **FIRING)} or {S.alerts_of_job(**FIRING)}) "
        f"or 0 * max({NODES})",
        ((1, BAD_TEXT),),
    ),
    Figure("Step", "of the median node.", "s", f"max({S.pick('job_id:ibpulse_step_period_seconds:median')})"),
    Figure("Duty cycle", "mean of the nodes.", "percentunit", f"max({S.pick('job_id:ibpulse_duty_cycle:mean')})"),
    Figure(
        "Bandwidth",
        "transmit + receive of all ports of the job, mean of five minutes.",
        "Bps",
        f"max({S.pick('job_id:ibpulse_bandwidth_bytes:rate5m')})",
    ),
    Figure(
        "Fairness",
        "Jain index over all ports of the job; 1 when all carry the same, investigate below 0.98.",
        "none",
        f"max({S.pick('job_id:ibpulse_rail_fairness:ratio5m')})",
    ),
)


def _state() -> model.Panel:
    head = PanelHead("State of the job", "The job now.", "none", "nothing is known of the job", width=24, height=4)
    return status_row(head, STATE)


def _nodes_in_time() -> model.Panel:
    return heat(
        PanelHead(
            "When was which node behind the median?",
            "One row per node; the colour is its bandwidth while active ÷ that of the median node of the job, over "
            "a minute, from half (blue) to one and a half (red). A bluer row is a slow node. In lockstep, all nodes "
            "carry the same bytes: a slow node needs longer for them.",
            "percentunit",
            UNKNOWN,
            width=12,
            height=11,
        ),
        [Query(by_node("max", RATIO), "{{instance}}")],
        color_min=0.5,
        color_max=1.5,
        rows=True,
    )


def _bandwidth_in_time() -> model.Panel:
    bandwidth = by_node("max", S.pick("instance_job_id:ibpulse_bandwidth_bytes:rate5m"))
    line_rate = by_node("max", S.pick("instance:ibpulse_line_rate_bytes:sum"))
    return heat(
        PanelHead(
            "When was which node busy?",
            "One row per node; the colour is the bandwidth of the job's ports, transmit + receive, ÷ the line rate "
            "of all rails of the node, over five minutes. All rows turn blue at a checkpoint, a hang or the end.",
            "percentunit",
            UNKNOWN,
            width=12,
            height=11,
        ),
        [Query(f"{bandwidth} / {line_rate}", "{{instance}}")],
        color_max=1,
        rows=True,
    )


def _nodes() -> model.Panel:
    columns = [
        Column("Of the median", by_node("max", RATIO), "percentunit", width=135),
        Column("While active", _node("ibpulse_job_active_bandwidth_bytes_per_second"), "Bps", width=115),
        Column("Step", by_node("max", STEP), "s", width=85),
        Column("Duty cycle", _node("ibpulse_job_duty_cycle_ratio"), "percentunit", width=95),
        Column("Bad rails", _node("instance:ibpulse_bad_rails:sum"), "none", ((1, BAD_CELL),), 85),
    ]
    return table(
        PanelHead(
            "Which node is the slowest?",
            "One row per node: bandwidth while active against that of the median node, mean while active, step, duty "
            "cycle, and the bad rails of the node. Click a node to open its board. A dash is an unknown value.",
            "none",
            UNKNOWN,
            width=14,
            height=11,
        ),
        columns,
        {"instance": "Node"},
        sort=("Of the median",),
        ascending=True,
        link=TO_NODE,
    )


def _node(name: str) -> str:
    return by_node("max", S.pick(name))


def _first_to_stop() -> model.Panel:
    last = f"1000 * {_node('ibpulse_job_last_traffic_timestamp_seconds')}"
    early = f"topk({TOP}, {by_node('max', STOPPED)})"
    return table(
        PanelHead(
            "Which node stopped first?",
            "Only while the whole job has been silent for more than a minute: how long before the job's last "
            f"traffic a node's was, the {TOP} first ones, and the time of its last sample with traffic. {CLOCKS} A "
            "node that had no traffic since ibpulse first saw the job there is not listed. Empty is the good case.",
            "none",
            "The job is not silent, or nothing is known of it",
            width=10,
            height=11,
        ),
        [
            Column("Before the last", early, "s", ((0.1, NOTICE_CELL), (1, BAD_CELL)), 125),
            Column("Last traffic", f"{last} and on ({NODE}) {early}", "dateTimeAsIso", width=180),
        ],
        {"instance": "Node"},
        sort=("Before the last",),
        link=TO_NODE,
    )


def _spread(title: str, text: str, unit: str, expr: str, empty: str = UNKNOWN) -> model.Panel:
    levels = {"highest": "max", "median": "quantile", "lowest": "min"}
    queries = [
        Query(f"{function}({'0.5, ' if function == 'quantile' else ''}{expr})", name)
        for name, function in levels.items()
    ]
    return lines(PanelHead(title, text, unit, empty, width=12), queries)


def _history() -> list[model.Panel]:
    return [
        _spread(
            "How long is a step?",
            "Period of the traffic of the job's rails: the longest, median and shortest of the nodes, where it is "
            "clear. The steps of one job agree, unless a node finds a part or a multiple of it.",
            "s",
            STEP,
            "No node of the job has a regular step in this span",
        ),
        _spread(
            "How far apart are the nodes?",
            "The lowest and the highest of the nodes. The heatmap and the table name them.",
            "percentunit",
            RATIO,
        ),
        lines(
            PanelHead(
                "How much traffic does the job have?",
                "Transmit + receive of all ports of the job on all nodes, mean of five minutes.",
                "Bps",
                UNKNOWN,
                width=12,
            ),
            [Query(f"max by ({JOB}) ({S.pick('job_id:ibpulse_bandwidth_bytes:rate5m')})", "bandwidth")],
        ),
        lines(
            PanelHead(
                "How long has the job been silent?",
                "Of the whole job: a saw-tooth below the step is work, a line that rises is a checkpoint, a hang, or "
                "the time until the scheduler notices the end.",
                "s",
                UNKNOWN,
                width=12,
            ),
            [Query(f"max by ({JOB}) ({SILENT})", "silent")],
            thresholds=colors.steps((60, colors.ORANGE), (180, colors.VERMILION)),
        ),
    ]


def board() -> Board:
    """The board about one training job."""
    sections = [
        Section("", [_state(), _nodes_in_time(), _bandwidth_in_time(), _nodes(), _first_to_stop()]),
        Section("How did the job change?", _history()),
        Section("Which rail differs?", [rails_in_trouble(S), *rail_panels(S, UNKNOWN)]),
    ]
    return Board(
        uid=layout.JOB,
        title="ibpulse / Job",
        question="Is this training job healthy: which node is behind, which one stopped first, and which rail is bad?",
        variables=[
            variables.datasource(),
            variables.cluster(single=True),
            variables.job(),
            variables.training_job(),
            variables.node_of_job(),
            *variables.node_address(),
        ],
        sections=sections,
        marks=marks.of_node(S),
        pages=[links.JOB_PAGE, links.GPUS, links.NODES],
    )
