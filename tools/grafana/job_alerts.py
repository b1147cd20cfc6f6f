"""The alerts about training jobs and their traffic.

The signature is a guess from the shape of the traffic, so its alert never pages anyone, and warns only where counters
show that the saturation costs something.
"""

from __future__ import annotations

from tools.grafana.alert import INSTANCE, PORT_NAME, Alert
from tools.grafana.job_recordings import ALONE, JOB_SILENT, LAST_TRAFFIC
from tools.grafana.node_recordings import MOE_WINDOW, SATURATED_WINDOW
from tools.grafana.rule_levels import EXPORTERS, JOB, NODE, PORT, RAILS, newest, summed
from tools.grafana.rule_numbers import Threshold, fixed

JOB_OR_NODE = "cluster, job, job_id, instance, node"
STEP = "job_id:ibpulse_step_period_seconds:median"
BEHIND = "instance_job_id:ibpulse_active_bandwidth_to_median:ratio5m < <behind_ratio>"
SATURATED = "ibpulse_port_{}_saturated_seconds_total"
STOPPED = "last_over_time(instance_job_id:ibpulse_stopped_early:seconds[<stall_memory>])"
EARLIEST = f"max by ({JOB}) ({STOPPED})"
# a node that answers without a job has lost it; one that does not answer may still have it
STILL_THERE = f"({STOPPED} unless on ({NODE}) ({EXPORTERS} == 1 unless on ({NODE}) count by ({NODE}) ({LAST_TRAFFIC})))"
RESUMED = "time() - job_id:ibpulse_last_traffic_timestamp_seconds:max <= <job_silent>"
FIRST = f"({STOPPED} == on ({JOB}) group_left () {EARLIEST})"

JOBS = (
    Alert(
        "IBPulseSustainedMoESaturation",
        "warning",
        f"job_id:ibpulse_moe_saturated:ratio > <moe_share>\n"
        f"or (\n  instance:ibpulse_moe_saturated:ratio > <moe_share>\n"
        f"  and on ({NODE}) {newest('ibpulse_node_moe_saturated', NODE)} == 1\n"
        f"  unless on ({NODE}) {ALONE}\n)",
        Threshold(
            "moe_for", "5m", "Long enough for the state to persist until you take a capture or open the live page."
        ),
        "A job's traffic looks like MoE training that saturates its rails.",
        "<$labels.instance | or $labels.job_id> (a job, or a node whose job is unknown) spent "
        "<$value | humanizePercentage> of the last <moe_window> in sustained MoE saturation: traffic that resembles "
        "mixture-of-experts training, almost always active, with peaks near the line rate. The resemblance "
        "is a guess from the shape; the duty cycle and the peaks are measured. A warning says "
        "that counters also show waiting, congestion marks or lost packets.",
        (
            MOE_WINDOW,
            Threshold(
                "moe_share",
                "0.8",
                "The state already has a hold time of its own; 80 % of the window leaves room for checkpoints.",
            ),
            fixed("congestion_memory", "15m", "Congestion that returns within a quarter of an hour has not ended."),
        ),
        # the evidence comes and goes; the severity should not
        when=f"on ({JOB_OR_NODE}) (\n  max_over_time(job_id:ibpulse_congested_rails:count[<congestion_memory>])\n"
        f"  or count by ({NODE}) (max_over_time(instance_device_port:ibpulse_congested:bool[<congestion_memory>]))\n)",
        otherwise="info",
        board="ibpulse-fleet",
        of_node=False,
    ),
    Alert(
        "IBPulsePortSaturated",
        "info",
        f"(\n  {summed('rate', SATURATED.format('transmit'), '<saturated_window>')} > <saturated_share>\n"
        f"  or {summed('rate', SATURATED.format('receive'), '<saturated_window>')} > <saturated_share>\n)\n"
        f"and on ({PORT}) {RAILS}\nand on ({PORT}) instance_device_port:ibpulse_congested:bool",
        Threshold("saturated_for", "5m", "The window already filters short peaks; this only tolerates a late scrape."),
        "A rail is at its line rate almost all the time, and its traffic waits.",
        f"Port {PORT_NAME} was saturated for <$value | humanizePercentage> of the last <saturated_window>: "
        "the median of its 10 ms samples was near the line rate, and its counters show waiting, congestion marks or "
        "lost packets.",
        (
            SATURATED_WINDOW,
            Threshold(
                "saturated_share",
                "0.9",
                "A link whose median is at the limit 90 % of the time has no headroom left.",
            ),
        ),
    ),
    Alert(
        "IBPulseTrafficStalled",
        "warning",
        f"(\n  ({FIRST} and on ({JOB}) count by ({JOB}) ({FIRST}) == 1)\n  or on ({JOB}) {EARLIEST}\n)\n"
        f"and on ({JOB}) count_over_time({STEP}[<stepped_memory>]) > <stall_steps>\n"
        f"and on ({JOB}) {STILL_THERE}\nunless on ({JOB}) {RESUMED}",
        Threshold(
            "stall_for",
            "3m",
            "NCCL's watchdog waits ten minutes by default: this alert fires earlier, but not during a checkpoint.",
        ),
        "A job's regular training traffic has stopped, and the job is still there.",
        "No node of job <$labels.job_id> has carried its traffic for <stall_for> or longer, after regular steps. "
        f"<if and $labels.instance (gt $value 0.0)>{INSTANCE} stopped first, <$value | humanizeDuration> before the "
        "last node by their clocks.<else>No node stopped before all others.<end>",
        (
            fixed("stall_memory", "4m", "Longer than scrapes fail while a Prometheus restarts."),
            JOB_SILENT,
            fixed("stepped_memory", "6h", "A job that hangs is known as one with regular steps for as long."),
            fixed("stall_steps", "10", "Evaluations with a clear period within that time: a job rather than a test."),
        ),
        board="ibpulse-job",
        keep=False,
        of_node=False,
    ),
    Alert(
        "IBPulseStepTimeRegressed",
        "info",
        f"(\n  quantile_over_time(0.5, {STEP}[<step_recent>])\n"
        f"  / quantile_over_time(0.5, {STEP}[<step_memory>] offset <step_recent>)\n"
        f") > <step_slower> < <step_other>\n"
        f"and on ({JOB}) count_over_time({STEP}[<step_memory>] offset <step_recent>) > <step_known>\n"
        f"and on ({JOB}) {STEP}",
        Threshold("step_for", "5m", "One evaluation phase may make a few steps longer."),
        "The training step of a job has become longer.",
        "The step of job <$labels.job_id>, as seen in its traffic, took <$value | humanize> times as long in the "
        "last <step_recent> as in the <step_memory> before.",
        (
            fixed("step_recent", "10m", "The median of ten minutes ignores single wrong windows."),
            fixed("step_memory", "1h", "The reference that the step is compared with."),
            fixed("step_known", "20", "Evaluations with a clear period in the reference: later than the first steps."),
            Threshold("step_slower", "1.1", "10 % longer; the period itself is accurate to 1 or 2 %."),
            fixed("step_other", "1.9", "A step about twice as long is a period that spans two steps."),
        ),
        board="ibpulse-job",
        of_node=False,
    ),
    Alert(
        "IBPulseNodeBehindItsJob",
        "warning",
        f"{BEHIND}\n"
        f"and on ({JOB}) count by ({JOB}) ({BEHIND}) / on ({JOB}) job_id:ibpulse_nodes:count <= <behind_minority>",
        Threshold("behind_for", "10m", "A checkpoint or a noisy neighbour is over by then."),
        "A node sends more slowly than the other nodes of its job.",
        f"While active, {INSTANCE} carries <$value | humanizePercentage> of what the median node of job "
        "<$labels.job_id> carries. In a collective, the slowest node sets the pace.",
        (
            Threshold("behind_ratio", "0.85", "Healthy nodes of one job differ by a few per cent."),
            fixed(
                "behind_minority",
                "0.25",
                "If more nodes differ, the job is built so, for example in pipeline stages. One of three is more.",
            ),
        ),
    ),
)
