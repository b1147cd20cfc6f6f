"""The recordings of training jobs: of a job on each node, and of a job on all its nodes."""

from __future__ import annotations

from tools.grafana.rule_levels import JOB, NODE_OF_JOB, PORT, PORT_OF_JOB, Recording
from tools.grafana.rule_numbers import fixed

JOB_SILENT = fixed(
    "job_silent", "60", "By then, the last traffic of every node is known, at scrape intervals of up to a minute."
)
THRESHOLDS = (JOB_SILENT,)

# a port that two jobs share, or that another job owned within the window, has bytes of both; ids belong to a scheduler
OWNED = (
    f"(max by ({PORT_OF_JOB}) (ibpulse_port_job_info)\n"
    f"   and on ({PORT})\n"
    f"   count by ({PORT}) (max by ({PORT_OF_JOB}, scheduler) (max_over_time(ibpulse_port_job_info[5m]))) == 1)"
)
ON_NODES = f"count by ({NODE_OF_JOB}) (ibpulse_port_job_info)"
ACTIVE_BANDWIDTH = "ibpulse_job_active_bandwidth_bytes_per_second"
LAST_TRAFFIC = "ibpulse_job_last_traffic_timestamp_seconds"

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
