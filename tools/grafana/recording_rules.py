"""The recording rules, which make the fleet dashboards and the alerts cheap.

Names are level:metric:operations. Every rule keeps `cluster` (where the servers set one), `job` and `instance`, or
has a name that shows that it sums over instances. The label `job` is that of the scrape job; `job_id` is that of a
training job. `<name>` is a threshold to fill in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.grafana.rule_numbers import fixed

NODE = "cluster, job, instance"
PORT = f"{NODE}, device, port"
JOB = "cluster, job, job_id"
NODE_OF_JOB = f"{NODE}, job_id"
PORT_OF_JOB = f"{PORT}, job_id"
RAILS = f'max by ({PORT}) (ibpulse_port_info{{rail="true"}})'
OBSERVED = "rate(ibpulse_port_observed_seconds_total[5m])"

MOE_WINDOW = fixed("moe_window", "10m", "Ten minutes contain hundreds of steps; a burst in one phase cannot fill them.")
SATURATED_WINDOW = fixed(
    "saturated_window", "15m", "A training step, its evaluation and its checkpoint fit into a quarter of an hour."
)
MISSED_WINDOW = fixed("missed_window", "10m", "Single late wake-ups are normal on a busy node.")
STEP_SCORE = fixed("step_score", "0.4", "Below this score, the exporter itself reports no period.")
JOB_SILENT = fixed(
    "job_silent", "60", "By then, the last traffic of every node is known, at scrape intervals of up to a minute."
)
THRESHOLDS = (MOE_WINDOW, SATURATED_WINDOW, MISSED_WINDOW, STEP_SCORE, JOB_SILENT)


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule; `text` describes its value."""

    record: str
    expr: str
    text: str


def _over_rails(numerator: str, denominator: str) -> str:
    return (
        f"sum by ({NODE}) ({numerator} * on ({PORT}) group_left () {RAILS})\n"
        f"/ sum by ({NODE}) ({denominator} * on ({PORT}) group_left () {RAILS})"
    )


def _mean_utilization(direction: str) -> Recording:
    return Recording(
        f"instance:ibpulse_{direction}_utilization:mean5m",
        f"sum by ({NODE}) (rate(ibpulse_port_{direction}_bytes_total[5m]) * on ({PORT}) group_left () {RAILS})\n"
        f"/ (max by ({NODE}) (avg_over_time(ibpulse_node_line_rate_bytes_per_second[5m])) / 2)",
        f"Mean {direction} utilisation of the node's rails: their bytes ÷ their line rate, idle rails included.",
    )


def _duty_cycle(direction: str) -> Recording:
    return Recording(
        f"instance:ibpulse_{direction}_duty_cycle:ratio5m",
        _over_rails(f"rate(ibpulse_port_{direction}_active_seconds_total[5m])", OBSERVED),
        f"Share of the observed time in which the node's rails were active, {direction} direction.",
    )


NODES = (
    Recording(
        "instance:ibpulse_bandwidth_bytes:rate5m",
        f"sum by ({NODE}) (\n"
        "  (rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m]))\n"
        f"  * on ({PORT}) group_left () {RAILS}\n)",
        "Bandwidth (transmit + receive) of the node's rails.",
    ),
    _mean_utilization("transmit"),
    _mean_utilization("receive"),
    _duty_cycle("transmit"),
    _duty_cycle("receive"),
    Recording(
        "instance:ibpulse_step_period_seconds:scored",
        f"ibpulse_node_step_period_seconds and on ({NODE}) (ibpulse_node_step_period_score >= <step_score>)",
        "Step period where it is clear, otherwise absent, which makes medians over time meaningful.",
    ),
    Recording(
        "instance:ibpulse_moe_saturated:ratio",
        "rate(ibpulse_node_moe_saturated_seconds_total[<moe_window>])",
        "Share of the time in sustained MoE saturation.",
    ),
    Recording(
        "instance:ibpulse_bandwidth_saturated:ratio",
        "rate(ibpulse_node_bandwidth_saturated_seconds_total[<saturated_window>])",
        "Share of the time in which the node's bandwidth was saturated.",
    ),
    Recording(
        "instance:ibpulse_missed_ticks:ratio",
        "rate(ibpulse_sampler_missed_ticks_total[<missed_window>])\n"
        "/ (rate(ibpulse_sampler_ticks_total[<missed_window>]) + "
        "rate(ibpulse_sampler_missed_ticks_total[<missed_window>]))",
        "Share of the samples that the sampler missed.",
    ),
    Recording(
        "instance:ibpulse_idle_rails:sum",
        f"sum by ({NODE}) (ibpulse_port_rail_idle)",
        "Rails without traffic while their siblings carry traffic.",
    ),
)

FLEET = (
    Recording("job:ibpulse_nodes:count", "count by (cluster, job) (ibpulse_node_rails)", "Nodes that report."),
    Recording(
        "job_signature:ibpulse_nodes:count",
        "count by (cluster, job, signature) (ibpulse_node_workload_signature == 1)",
        "Nodes by the signature of their traffic.",
    ),
    Recording(
        "job:ibpulse_bandwidth_bytes:rate5m",
        "sum by (cluster, job) (instance:ibpulse_bandwidth_bytes:rate5m)",
        "Bandwidth of all rails of all nodes.",
    ),
    Recording(
        "job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m",
        "sum by (cluster, job, le) (rate(ibpulse_node_bandwidth_utilization_ratio_bucket[5m]))",
        "Distribution of the bandwidth utilisation of all nodes, for one heatmap of the fleet.",
    ),
)

# a port that two jobs share, or that another job owned within the window, has bytes of both; ids belong to a scheduler
OWNED = (
    f"(max by ({PORT_OF_JOB}) (ibpulse_port_job_info)\n"
    f"   and on ({PORT})\n"
    f"   count by ({PORT}) (max by ({PORT_OF_JOB}, scheduler) (max_over_time(ibpulse_port_job_info[5m]))) == 1)"
)
ACTIVE_BANDWIDTH = "ibpulse_job_active_bandwidth_bytes_per_second"
LAST_TRAFFIC = "ibpulse_job_last_traffic_timestamp_seconds"

JOBS = (
    Recording(
        "job_id:ibpulse_nodes:count",
        f"count by ({JOB}) (count by ({NODE_OF_JOB}) (ibpulse_port_job_info))",
        "Nodes on which the job owns a port.",
    ),
    Recording(
        "instance_device_port_job_id:ibpulse_bandwidth_bytes:rate5m",
        f"sum by ({PORT_OF_JOB}) (\n"
        "  (rate(ibpulse_port_transmit_bytes_total[5m]) + rate(ibpulse_port_receive_bytes_total[5m]))\n"
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
        "instance_job_id:ibpulse_active_bandwidth_bytes:mean5m",
        # a mean over time outlives the job
        f"max by ({NODE_OF_JOB}) (avg_over_time({ACTIVE_BANDWIDTH}[5m]) and {ACTIVE_BANDWIDTH})",
        "Bandwidth of the job on a node while active.",
    ),
    Recording(
        "job_id:ibpulse_active_bandwidth_bytes:median5m",
        f"quantile by ({JOB}) (0.5, instance_job_id:ibpulse_active_bandwidth_bytes:mean5m)",
        "Bandwidth while active of the job's median node.",
    ),
    Recording(
        "instance_job_id:ibpulse_active_bandwidth_to_median:ratio5m",
        "instance_job_id:ibpulse_active_bandwidth_bytes:mean5m\n"
        f"/ on ({JOB}) group_left () job_id:ibpulse_active_bandwidth_bytes:median5m",
        "Bandwidth while active of a node ÷ that of the job's median node.",
    ),
    Recording(
        "job_id:ibpulse_step_period_seconds:median",
        f"quantile by ({JOB}) (0.5, max by ({NODE_OF_JOB}) (ibpulse_job_step_period_seconds > 0))",
        "Step period of the job's median node.",
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

GROUPS = {"ibpulse-nodes": NODES, "ibpulse-fleet": FLEET, "ibpulse-jobs": JOBS}
