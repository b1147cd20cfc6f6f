"""The recordings of training jobs: of a job on each node, and of a job on all its nodes."""

from __future__ import annotations

from tools.grafana.rule_levels import JOB, NODE_OF_JOB, PORT, PORT_OF_JOB, Recording
from tools.grafana.rule_numbers import fixed

JOB_SILENT = fixed(
    "job_silent", "60", "By then, the last traffic of every node is known, at scrape intervals of up to a minute."
)
STEPS = (
    fixed("step_memory", "1h", "The reference that the step is compared with."),
    fixed("step_recent", "10m", "What is newer is not in the reference, so that the alert does not end at once."),
    fixed("step_known", "80", "Evaluations, of 15 s, with a clear period in the reference."),
)
THRESHOLDS = (JOB_SILENT, *STEPS)

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
USUAL = f"{STEP}[<step_memory>] offset <step_recent>"
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
        f"{STEP} / quantile_over_time(0.95, {USUAL})\nand count_over_time({USUAL}) > <step_known>",
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
