"""The recording rules, which make the fleet dashboards and the alerts cheap: all groups in their order.

Names are level:metric:operations. Every rule keeps `cluster` and `node` (where there are any), `job` and `instance`, or
has a name that shows that it sums over instances. The label `job` is that of the scrape job; `job_id` is that of a
training job. `<name>` is a threshold to fill in.
"""

from __future__ import annotations

from tools.grafana.rule_levels import (
    DOWN_RAILS,
    EXPORTERS,
    FLEET,
    JOB,
    NODE,
    NODE_OF_JOB,
    PORT,
    PORT_OF_JOB,
    RAILS,
    Recording,
    newest,
    since,
    summed,
    targets,
)
from tools.grafana.rule_numbers import Threshold, fixed

MOE_WINDOW = fixed("moe_window", "10m", "Ten minutes contain hundreds of steps; a burst in one phase cannot fill them.")
STEPS = (
    fixed("step_memory", "1h", "The reference that the step is compared with."),
    fixed("step_recent", "10m", "What is newer is not in the reference, so that the alert does not end at once."),
    fixed("step_grid", "1m", "The reference is counted in these, so that it does not depend on `alert_interval`."),
    fixed("step_known", "20", "Minutes with a clear period in the reference."),
)
THRESHOLDS = (
    MOE_WINDOW,
    fixed(
        "saturated_window", "15m", "A training step, its evaluation and its checkpoint fit into a quarter of an hour."
    ),
    fixed("step_score", "0.4", "Below this score, the exporter itself reports no period."),
    fixed(
        "used_memory",
        "30m",
        "A node counts as used for this long after its last job, so that alerts about it outlast it.",
    ),
    fixed("congestion_window", "10m", "As long as the window of MoE saturation."),
    Threshold(
        "congestion_stalled",
        "0.1",
        "A sender that waits, or shows signs of the path, of the receiver or of loss, for a tenth of the time delays "
        "steps; less is normal in an all-to-all.",
    ),
    Threshold(
        "congestion_marks", "100", "Congestion notifications per second and port; a few are normal when flows begin."
    ),
    fixed("congestion_sequence", "1", "Lost or reordered packets per second and port; a healthy fabric has none."),
    fixed(
        "job_silent", "60", "By then, the last traffic of every node is known, at scrape intervals of up to a minute."
    ),
    *STEPS,
)
"""The numbers in the recordings."""

# a day: what links and counters did, and how many rails a node had; evaluated every five minutes, each over the five
# minutes before, so that sums over a day are exact and cheap: 288 samples per node instead of 5,760 per counter

INTERVAL = "5m"
DAY = "1d"
ERRORS = "|".join(
    f"ibpulse_{name}_total"
    for name in (
        "symbol_error",
        "link_error_recovery",
        "port_errors_received",
        "packet_sequence_errors",
        "local_ack_timeout_errors",
        "out_of_buffer_drops",
        "rx_icrc_encapsulated_errors",
    )
)
# changes of state begin at 0 with the process, so they are second choice
LINK_DROPS = (
    f"{since('ibpulse_link_downed_total', INTERVAL)}\n"
    f"  or on ({PORT}) floor({summed('increase', 'ibpulse_port_state_changes_total', INTERVAL)} / 2)"
)


def _daily(kind: str, expr: str, text: str) -> tuple[Recording, Recording]:
    """The sum in each interval and the sum over the last day."""
    name = f"instance:ibpulse_{kind}:increase"
    return (
        Recording(f"{name}{INTERVAL}", f"sum by ({NODE}) (\n  {expr}\n)", f"{text} in the last five minutes."),
        Recording(
            f"{name}{DAY}",
            f"max by ({NODE}) (sum_over_time({name}{INTERVAL}[{DAY}]))",
            f"{text} in the last 24 hours.",
        ),
    )


def _highest(kind: str, expr: str, text: str) -> tuple[Recording, Recording]:
    """The value and its maximum over the last day."""
    name = f"instance:ibpulse_{kind}"
    return (
        Recording(f"{name}:max", expr, f"{text}."),
        Recording(f"{name}:max1d", f"max by ({NODE}) (max_over_time({name}:max[{DAY}]))", f"{text}, most of a day."),
    )


DAYS = (
    *_daily(
        "errors",
        since(f'{{__name__=~"{ERRORS}"}}', INTERVAL, f"{PORT}, counter"),
        "Errors of links and packets on the node",
    ),
    *_daily("link_events", LINK_DROPS, "Times that a link of the node went down"),
    *_highest("expected_rails", newest("ibpulse_node_expected_rails", NODE), "Rails that the node should have"),
    *_highest("ports", f"count by ({NODE}) (count by ({PORT}) (ibpulse_port_info))", "Ports of the node"),
)


# each node, from its rails


OBSERVED = "rate(ibpulse_port_observed_seconds_total[5m])"
IDLE, SLOW, TRAINED_DOWN = (newest(f"ibpulse_port_{state}") for state in ("rail_idle", "rail_slow", "trained_down"))
RAIL_COUNT = newest("ibpulse_node_rails", NODE)


def _of_rails(expr: str) -> str:
    """The sum over the rails of a node; copies of a series count once."""
    return f"sum by ({NODE}) (max by ({PORT}, pod) ({expr}) * on ({PORT}) group_left () {RAILS})"


def _mean_utilization(direction: str) -> Recording:
    return Recording(
        f"instance:ibpulse_{direction}_utilization:mean5m",
        f"{_of_rails(f'rate(ibpulse_port_{direction}_bytes_total[5m])')}\n"
        f"/ on ({NODE}) (max by ({NODE}) (avg_over_time(ibpulse_node_line_rate_bytes_per_second[5m])) / 2)",
        f"Mean {direction} utilisation of the node's rails: their bytes ÷ their line rate, idle rails included.",
    )


def _duty_cycle(direction: str) -> Recording:
    return Recording(
        f"instance:ibpulse_{direction}_duty_cycle:ratio5m",
        f"{_of_rails(f'rate(ibpulse_port_{direction}_active_seconds_total[5m])')}\n/ {_of_rails(OBSERVED)}",
        f"Share of the observed time in which the node's rails were active, {direction} direction.",
    )


def _of_day(kind: str) -> str:
    """What is recorded as seldom as Prometheus looks back."""
    return newest(f"last_over_time(instance:ibpulse_{kind}:max1d[10m])", NODE)


def _rails(kind: str, expr: str, text: str) -> Recording:
    return Recording(f"instance:ibpulse_{kind}_rails:sum", expr, text)


TRAFFIC = (
    Recording(
        "instance:ibpulse_bandwidth_bytes:rate5m",
        _of_rails("rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m])"),
        "Bandwidth (transmit + receive) of the node's rails.",
    ),
    _mean_utilization("transmit"),
    _mean_utilization("receive"),
    _duty_cycle("transmit"),
    _duty_cycle("receive"),
    Recording(
        "instance:ibpulse_line_rate_bytes:sum",
        newest("ibpulse_node_line_rate_bytes_per_second", NODE),
        "Line rate of all rails of the node, both directions.",
    ),
    Recording(
        "instance:ibpulse_peak_utilization:ratio1m",
        newest('ibpulse_node_bandwidth_peak_utilization_ratio{window="1m"}', NODE),
        "Highest bandwidth of a single sample in the last minute ÷ the line rate of the node.",
    ),
    Recording(
        "instance:ibpulse_step_period_seconds:scored",
        f"{newest('ibpulse_node_step_period_seconds', NODE)}\n"
        f"and on ({NODE}) ({newest('ibpulse_node_step_period_score', NODE)} >= <step_score>)",
        "Step period where it is clear, otherwise absent, which makes medians over time meaningful.",
    ),
    Recording(
        "instance:ibpulse_moe_saturated:ratio",
        summed("rate", "ibpulse_node_moe_saturated_seconds_total", "<moe_window>", NODE),
        "Share of the time in sustained MoE saturation.",
    ),
    Recording(
        "instance:ibpulse_bandwidth_saturated:ratio",
        summed("rate", "ibpulse_node_bandwidth_saturated_seconds_total", "<saturated_window>", NODE),
        "Share of the time in which the node's bandwidth was saturated.",
    ),
    Recording(
        "instance_device_port:ibpulse_congested:bool",
        f"group by ({PORT}) (\n"
        f"  sum by ({PORT}) (rate(ibpulse_port_transmit_limit_seconds_total"
        '{sign=~"path|receiver|loss"}[<congestion_window>])) > <congestion_stalled>\n'
        "  or avg_over_time(ibpulse_port_transmit_stalled_ratio[<congestion_window>]) > <congestion_stalled>\n"
        "  or rate(ibpulse_rp_cnp_packets_handled_total[<congestion_window>]) > <congestion_marks>\n"
        "  or rate(ibpulse_np_ecn_marked_roce_packets_received_total[<congestion_window>]) > <congestion_marks>\n"
        "  or rate(ibpulse_packet_sequence_errors_total[<congestion_window>]) > <congestion_sequence>\n)",
        "1 for a port whose traffic waits, is marked, refused or gets lost; absent for others. "
        "Packets out of order alone do not count, because adaptive routing reorders them.",
    ),
)

STATE = (
    Recording(
        "instance:ibpulse_used:bool",
        f"max by ({NODE}) (max_over_time(ibpulse_node_jobs[<used_memory>]) > bool 0)\n"
        f"or on ({NODE})\n"
        f"max by ({NODE}) (changes(ibpulse_node_last_traffic_timestamp_seconds[<used_memory>]) > bool 0)",
        "1 if the node has or recently had a job; if its jobs are unknown, if its rails recently carried traffic.",
    ),
    _rails("idle", f"sum by ({NODE}) ({IDLE})", "Rails without traffic while their siblings carry traffic."),
    _rails("slow", f"sum by ({NODE}) ({SLOW})", "Rails that carry much less than their siblings."),
    _rails("trained_down", f"sum by ({NODE}) ({TRAINED_DOWN})", "Rails at a lower rate than others of their make."),
    _rails("down", f"count by ({NODE}) ({DOWN_RAILS})\nor on ({NODE}) 0 * {RAIL_COUNT}", "Rails whose link is down."),
    _rails(
        "missing",
        # the daemon's own memory ends with its pod; the day's counts only if ports are gone too, not if roles changed
        f"clamp_min(\n  (\n    ({_of_day('expected_rails')}\n"
        f"     unless on ({NODE}) count by ({NODE}) (count by ({PORT}) (ibpulse_port_info)) "
        f">= on ({NODE}) {_of_day('ports')})\n"
        f"    or on ({NODE}) {newest('ibpulse_node_expected_rails', NODE)}\n  )\n  - on ({NODE}) {RAIL_COUNT}, 0\n)",
        "Rails that the node should have and does not.",
    ),
    _rails(
        "bad",
        f"(\n  count by ({NODE}) (\n    {IDLE} == 1\n    or {SLOW} == 1\n    or {TRAINED_DOWN} == 1\n"
        f"    or ({DOWN_RAILS})\n  )\n  or on ({NODE}) 0 * {RAIL_COUNT}\n)\n"
        f"+ on ({NODE}) (instance:ibpulse_missing_rails:sum or on ({NODE}) 0 * {RAIL_COUNT})",
        "Rails that are idle, slow, trained down, down or missing, each counted once.",
    ),
)

NODES = (*TRAFFIC, *STATE)


# all nodes together, and the coverage of the fleet by exporters

BAD = ("bad", "down", "idle", "missing", "slow", "trained_down")
SUMS_OF_DAY = {
    "link_events": "Times that a link went down",
    "errors": "Errors of links and packets",
}
WITH_RAILS = f"({newest('ibpulse_node_rails', NODE)} > 0 or {newest('ibpulse_node_expected_rails', NODE)} > 0)"
# of clusters that have exporters
EXPECTED = f"(max by (cluster, node) (<expected_nodes>) and on (cluster) {targets()})<unless>"
NAMED, UNNAMED = (newest(targets(f', node{sign}""'), NODE) for sign in ("!=", "="))
# without a label `node`, the host in `instance` is compared
NODES_UP = (
    "max by (cluster, node) (\n"
    f"    ({NAMED} == 1)\n"
    f'    or (label_replace({UNNAMED}, "node", "$1", "instance", "([^:]+).*") == 1)\n'
    "  )"
)

FLEETS = (
    Recording(
        "job:ibpulse_nodes:count",
        f"count by ({FLEET}) {WITH_RAILS}",
        "Nodes that report and have rails, or should have.",
    ),
    Recording(
        "job_signature:ibpulse_nodes:count",
        f"count by ({FLEET}, signature) (max by ({NODE}, signature) (ibpulse_node_workload_signature) == 1)",
        "Nodes by the signature of their traffic.",
    ),
    Recording(
        "job:ibpulse_bandwidth_bytes:rate5m",
        f"sum by ({FLEET}) (instance:ibpulse_bandwidth_bytes:rate5m)",
        "Bandwidth of all rails of all nodes.",
    ),
    Recording(
        "job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m",
        f"sum by ({FLEET}, le) (\n"
        f"  max by ({NODE}, pod, le) (rate(ibpulse_node_bandwidth_utilization_ratio_bucket[5m]))\n)",
        "Distribution of the bandwidth utilisation of all nodes, for one heatmap of the fleet.",
    ),
    *(
        Recording(
            f"job:ibpulse_{kind}_rails:sum",
            f"sum by ({FLEET}) (instance:ibpulse_{kind}_rails:sum)",
            f"Rails of all nodes that are {kind.replace('_', ' ')}.",
        )
        for kind in BAD
    ),
    Recording(
        "job:ibpulse_bad_nodes:count",
        f"count by ({FLEET}) (instance:ibpulse_bad_rails:sum > 0)\nor on ({FLEET}) 0 * job:ibpulse_nodes:count",
        "Nodes with a bad rail.",
    ),
    *(
        Recording(
            f"job:ibpulse_{kind}:increase1d",
            # as old as the interval of these recordings, which is as long as Prometheus looks back
            f"sum by ({FLEET}) (last_over_time(instance:ibpulse_{kind}:increase1d[10m]))",
            f"{text} in the last 24 hours, on all nodes.",
        )
        for kind, text in SUMS_OF_DAY.items()
    ),
    Recording(
        "job:ibpulse_exporters:count",
        f"count by ({FLEET}) ({EXPORTERS})",
        "Exporters that should be scraped.",
    ),
    Recording(
        "job:ibpulse_exporters_up:count",
        f"sum by ({FLEET}) ({EXPORTERS})",
        "Exporters that can be scraped.",
    ),
    Recording(
        "job:ibpulse_silent_exporters:ratio",
        f"count by ({FLEET}) ({EXPORTERS} == 0<unless>) / on ({FLEET}) count by ({FLEET}) ({EXPORTERS})",
        "Share of the exporters that cannot be scraped and are not in maintenance; absent if there is none.",
    ),
    Recording(
        "cluster:ibpulse_missing_nodes:count",
        f"count by (cluster) (\n  {EXPECTED}\n  unless on (cluster, node) {NODES_UP}\n)\n"
        f"or on (cluster) 0 * count by (cluster) ({EXPECTED})",
        "Nodes that should have an exporter, by another source, and have none that can be scraped.",
    ),
    Recording(
        "cluster:ibpulse_missing_nodes:ratio",
        f"cluster:ibpulse_missing_nodes:count / on (cluster) count by (cluster) ({EXPECTED})",
        "Their share of the nodes that should have an exporter.",
    ),
)


# training jobs: on each node, and on all their nodes


# a port that two jobs share, or that another job owned within the window, has bytes of both; ids belong to a scheduler
OWNED = (
    f"(max by ({PORT_OF_JOB}) (ibpulse_port_job_info)\n"
    f"   and on ({PORT})\n"
    f"   count by ({PORT}) (max by ({PORT_OF_JOB}, scheduler) (max_over_time(ibpulse_port_job_info[5m]))) == 1)"
)
ON_NODES = f"count by ({NODE_OF_JOB}) (ibpulse_port_job_info)"
ACTIVE = f"max by ({NODE_OF_JOB}) (ibpulse_job_active_bandwidth_bytes_per_second)"
MEDIAN_ACTIVE = "job_id:ibpulse_active_bandwidth_bytes:median"
STEP = "job_id:ibpulse_step_period_seconds:median"
LAST_TRAFFIC = "ibpulse_job_last_traffic_timestamp_seconds"

PACE = (
    Recording(
        MEDIAN_ACTIVE,
        f"quantile by ({JOB}) (0.5, {ACTIVE})",
        "Bandwidth while active of the job's median node, of the last minute.",
    ),
    Recording(
        "instance_job_id:ibpulse_active_bandwidth_to_median:ratio",
        f"{ACTIVE}\n/ on ({JOB}) group_left () {MEDIAN_ACTIVE}",
        "Bandwidth while active of a node ÷ that of the job's median node.",
    ),
    Recording(
        STEP,
        f"quantile by ({JOB}) (0.5, max by ({NODE_OF_JOB}) (ibpulse_job_step_period_seconds > 0))",
        "Step period of the job's median node, of the last minute.",
    ),
    Recording(
        "job_id:ibpulse_step_to_usual:ratio",
        # longer steps than those of an evaluation now and then, or than an irregular job has anyway
        f"{STEP} / quantile_over_time(0.95, {STEP}[<step_memory>] offset <step_recent>)\n"
        f"and count_over_time({STEP}[<step_memory>:<step_grid>] offset <step_recent>) > <step_known>",
        "Step period ÷ that which 95 % of the last hour did not exceed, without the newest ten minutes.",
    ),
)
"""What alerts read; evaluated as often as they are. The exporter has already taken the mean of a minute."""

JOBS = (
    Recording("job_id:ibpulse_nodes:count", f"count by ({JOB}) ({ON_NODES})", "Nodes on which the job owns a port."),
    Recording(
        "instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m",
        f"sum by ({PORT_OF_JOB}) (\n"
        f"  max by ({PORT}, pod) (\n"
        "    rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m])\n  )\n"
        f"  * on ({PORT}) group_left (job_id)\n  {OWNED}\n)",
        "Bandwidth (transmit + receive) of a port by its job, which was its only owner in the whole window.",
    ),
    Recording(
        "instance_job_id:ibpulse_bandwidth_bytes:rate5m",
        f"sum by ({NODE_OF_JOB}) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)",
        "Bandwidth of the job's ports on a node.",
    ),
    Recording(
        "job_id:ibpulse_bandwidth_bytes:rate5m",
        f"sum by ({JOB}) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)",
        "Bandwidth of the job's ports on all nodes.",
    ),
    Recording(
        "job_id:ibpulse_rail_fairness:ratio5m",
        "job_id:ibpulse_bandwidth_bytes:rate5m ^ 2\n"
        f"/ (count by ({JOB}) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m)\n"
        f"   * (sum by ({JOB}) (instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m ^ 2) > 0))",
        "Jain's fairness index over all ports of the job on all nodes; absent without traffic.",
    ),
    Recording(
        "job_id:ibpulse_duty_cycle:mean",
        f"avg by ({JOB}) (max by ({NODE_OF_JOB}) (ibpulse_job_duty_cycle_ratio))",
        "Duty cycle of the job, mean of its nodes.",
    ),
    Recording(
        "job_id:ibpulse_last_traffic_timestamp_seconds:max",
        f"max by ({JOB}) ({LAST_TRAFFIC})",
        "Time of the job's last traffic on any node.",
    ),
    Recording(
        "instance_job_id:ibpulse_stopped_early:seconds",
        "(job_id:ibpulse_last_traffic_timestamp_seconds:max\n"
        f" - on ({JOB}) group_right () max by ({NODE_OF_JOB}) ({LAST_TRAFFIC}))\n"
        f"and on ({JOB}) time() - job_id:ibpulse_last_traffic_timestamp_seconds:max > <job_silent>",
        "Time from a node's last traffic to that of the whole job, once the job is silent; the highest stopped first.",
    ),
)


# what only boards read: the faults, port by port


def _trouble() -> str:
    states = {4: DOWN_RAILS} | {
        code: f"{newest(f'ibpulse_port_{name}')} == 1"
        for code, name in {3: "trained_down", 2: "rail_idle", 1: "rail_slow"}.items()
    }
    # `and` and `==` bind less tightly than `*`; group is 1 for whatever is there
    return f"\nor on ({PORT}) ".join(f"{code} * group by ({PORT}) ({expr})" for code, expr in states.items())


BOARDS = (
    Recording(
        "instance_device_port:ibpulse_bad_rail:state",
        _trouble(),
        "State of a rail in trouble: 4 down, 3 trained down, 2 idle, 1 slow; absent for every other rail.",
    ),
)

DAILY = "ibpulse-days"
GROUPS = {
    DAILY: DAYS,
    "ibpulse-pace": PACE,
    "ibpulse-nodes": NODES,
    "ibpulse-fleet": FLEETS,
    "ibpulse-jobs": JOBS,
    "ibpulse-boards": BOARDS,
}
INTERVALS = {DAILY: INTERVAL, "ibpulse-pace": "<alert_interval>"}
"""The intervals of the groups that have their own; the windows of the group `DAILY` are as long."""
