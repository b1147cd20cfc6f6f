"""The alerts about training jobs and their traffic.

The signature is a guess from the shape of the traffic, so its alert never pages anyone.
"""

from __future__ import annotations

from ibpulse.gateway.push import SEVERITY, STALLED
from tools.grafana.alert import AT_ONCE, INSTANCE, Alert
from tools.grafana.job_recordings import STEPS
from tools.grafana.node_recordings import MOE_WINDOW
from tools.grafana.rule_levels import EXPORTERS, JOB, NODE, NODE_OF_JOB, PUSHED_JOB
from tools.grafana.rule_numbers import Threshold, fixed

RATIO = "instance_job_id:ibpulse_active_bandwidth_to_median:ratio"
BEHIND = f"{RATIO} < <behind_ratio>"
OF_JOB, OF_NODE = (
    # a mean over time outlives the job, and covers less than the window while the job is younger
    f"avg_over_time({name}[<moe_window>]) and {name} and {name} offset <moe_window>"
    for name in ("ibpulse_job_moe_saturated", "ibpulse_node_moe_saturated")
)
EARLY = "query (printf \"topk(3, instance_job_id:ibpulse_stopped_early:seconds{job_id='%s'} != 0)\" $labels.job_id)"

JOBS = (
    Alert(
        STALLED,
        SEVERITY,
        # a node that does not answer may still have the job, and be as silent as it was
        f"min by ({PUSHED_JOB}) (\n  max by ({NODE_OF_JOB}) (ibpulse_job_stall)\n"
        f"  or max by ({NODE_OF_JOB}) (last_over_time(ibpulse_job_stall[<stall_memory>]) == 1)\n"
        f"  unless on ({NODE}) ({EXPORTERS} == 1)\n) == 1",
        AT_ONCE,
        "A job's traffic has stopped, and the job is still there.",
        "No node of job <$labels.job_id> moves its traffic."
        f"<range {EARLY}> <.Labels.instance> stopped <.Value | humanizeDuration> before the last node.<end> "
        "First step: open the job's page at the gateway, then the log of the node that stopped first.",
        (fixed("stall_memory", "4m", "Longer than scrapes fail while a Prometheus restarts."),),
        board="ibpulse-job",
        keep=False,
        of_node=False,
        pushed=True,
    ),
    Alert(
        "IBPulseSustainedMoESaturation",
        "info",
        f"avg by ({JOB}) ({OF_JOB}) > <moe_share>\n"
        f"or max by ({NODE}) ({OF_NODE} unless on ({NODE}) ibpulse_job_moe_saturated) > <moe_share>",
        Threshold(
            "moe_for", "5m", "Long enough for the state to persist until you take a capture or open the live page."
        ),
        "A job's traffic looks like MoE training that saturates its rails.",
        "<$labels.instance | or $labels.job_id> (a job, or a node whose job is unknown) spent "
        "<$value | humanizePercentage> of the last <moe_window> in sustained MoE saturation: traffic that resembles "
        "mixture-of-experts training, almost always active, with peaks near the line rate. The resemblance "
        "is a guess from the shape; the duty cycle and the peaks are measured. First step: none is needed; a capture "
        "shows how the bursts of the experts overlap.",
        (
            MOE_WINDOW,
            Threshold(
                "moe_share",
                "0.8",
                "The state already has a hold time of its own; 80 % of the window leaves room for checkpoints.",
            ),
        ),
        board="ibpulse-fleet",
        of_node=False,
    ),
    Alert(
        "IBPulseStepTimeRegressed",
        "info",
        "job_id:ibpulse_step_to_usual:ratio > <step_slower> < <step_other>",
        Threshold("step_for", "30s", "Three evaluations: a single wrong window is over by then."),
        "The training step of a job has become longer.",
        "The step of job <$labels.job_id>, as seen in its traffic, takes <$value | humanize> times as long as "
        "nearly all steps of the <step_memory> before. First step: open the job board and look for a slower node.",
        (
            STEPS[0],
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
        f"and on ({JOB}) count by ({JOB}) ({BEHIND}) / on ({JOB}) job_id:ibpulse_nodes:count <= <behind_minority>\n"
        f"and {RATIO} offset <behind_settled>",
        Threshold("behind_for", "45s", "A noisy neighbour is over by then; the exporter has the mean of a minute."),
        "A node sends more slowly than the other nodes of its job.",
        f"While active, {INSTANCE} carries <$value | humanizePercentage> of what the median node of job "
        "<$labels.job_id> carries. In a collective, the slowest node sets the pace. "
        "First step: compare its rails, then its GPUs.",
        (
            Threshold("behind_ratio", "0.85", "Healthy nodes of one job differ by a few per cent."),
            fixed(
                "behind_minority",
                "0.25",
                "If more nodes differ, the job is built so, for example in pipeline stages. One of three is more.",
            ),
            fixed("behind_settled", "5m", "While a job begins, its weights take other ways than its gradients."),
        ),
    ),
)
