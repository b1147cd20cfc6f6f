"""The alerts in their groups. Their runbooks are `docs/runbooks/<name>.md`.

Placeholders in angle brackets are explained in `rule_numbers`. An alert has the labels of its node, and those of the
port, the device or the job where there is one, and no label that changes when a pod is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from ibpulse.gateway.push import SEVERITY, STALLED
from tools.grafana.recording_rules import MOE_WINDOW, STEPS
from tools.grafana.rule_levels import (
    DEVICE,
    EXPORTERS,
    FLEET,
    JOB,
    NODE,
    NODE_OF_JOB,
    PORT,
    PUSHED_JOB,
    RAILS,
    newest,
    summed,
    targets,
)
from tools.grafana.rule_numbers import Threshold, fixed

INSTANCE = "<$labels.instance>"
DEVICE_NAME = f"<$labels.device> on {INSTANCE}"
PORT_NAME = f"<$labels.device>:<$labels.port> on {INSTANCE}"
PLACE = ("cluster", "instance", "device", "port")


def asked(query: str, level: str = NODE) -> str:
    """What a text asks of Prometheus about the node or port of its alert; `HERE` in the query are its labels."""
    labels = [name for name in PLACE if name in level.split(", ")]
    here = ",".join(f"{name}='%s'" for name in labels)
    values = " ".join(f"$labels.{name}" for name in labels * query.count("HERE"))
    return f'query (printf "{query.replace("HERE", here)}" {values})'


AT_ONCE = fixed("at_once", "0s", "The expression already covers a time window.")
KEEP = Threshold(
    "keep_for",
    "5m",
    "Alerts about a present state stay on through a failed scrape, a replaced pod or a short evaluation.",
)
KEEP_CAUSE = Threshold(
    "keep_cause_for",
    "8m",
    "Alerts that silence others outlast them, so that the end of a cause is not followed by news of its consequences.",
)
USED = f"on ({NODE}) (instance:ibpulse_used:bool == 1)"
"""The condition under which a fault on a node costs somebody a job."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: `hold` is its `for`, `numbers` are its other thresholds, `board` is the dashboard that shows it.

    With `when`, the right side of `and`, the alert has its severity only where that holds, and `otherwise` elsewhere.
    `keep` says that it keeps firing for a while, which only expressions over a window of counters alone do not need;
    `of_node` that it is silent about a node in maintenance, `pushed` that the gateway pushes it as well, with the same
    labels.
    """

    name: str
    severity: str
    expr: str
    hold: Threshold
    summary: str
    description: str
    numbers: tuple[Threshold, ...] = ()
    board: str = "ibpulse-node"
    when: str = ""
    otherwise: str = ""
    keep: bool = True
    of_node: bool = True
    pushed: bool = False


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


CHANGES, DOWN_SECONDS = "ibpulse_port_state_changes_total", "ibpulse_port_down_seconds_total"
UP = newest("ibpulse_port_up")
SYMBOLS = "ibpulse_symbol_error_total"
PCIE = [newest(f"ibpulse_device_pcie_{kind}bytes_per_second", DEVICE) for kind in ("", "max_")]

GONE = "max by (device, port) (ibpulse_port_problem{problem='disappeared',HERE})"
GBITS = "8e-9 * max(ibpulse_port_rate_bytes_per_second{HERE})"
CARRIED = (
    "1e-9 * (rate(ibpulse_port_transmit_bytes_total{HERE}[5m]) + rate(ibpulse_port_receive_bytes_total{HERE}[5m]))"
)
MEDIAN = f"quantile(0.5, {CARRIED} and on (device, port) ibpulse_port_info{{rail='true',HERE}})"
"""Queries of texts: ports that disappeared, the highest link rate, what rails carried."""

LINKS = (
    Alert(
        "IBPulseLinkDown",
        "critical",
        f"{summed('increase', DOWN_SECONDS, '<down_window>')} > <down_seconds>\nand on ({PORT}) {RAILS}",
        AT_ONCE,
        "A rail was down for longer than a job survives.",
        f"Port {PORT_NAME} was down for <$value | humanize> s of the last <down_window>. "
        f"<with {asked('min(ibpulse_port_up{HERE})', PORT)}>"
        "<if eq (. | first | value) 1.0>The link is up again.<else>The link is still down.<end><end> "
        "Critical if the node has or recently had a job. First step: see whether the job still has traffic.",
        (
            fixed("down_window", "3m", "Two scrapes of a minute; the alert ends soon after the link is up."),
            Threshold(
                "down_seconds",
                "7",
                "Seconds. Collectives give up at about the time of NCCL_IB_TIMEOUT and its retries.",
            ),
        ),
        when=USED,
        otherwise="warning",
    ),
    Alert(
        "IBPulseRailMissing",
        "critical",
        f"{newest('ibpulse_node_expected_rails', NODE)} - on ({NODE}) {newest('ibpulse_node_rails', NODE)} > 0\n"
        f"or on ({NODE}) instance:ibpulse_missing_rails:sum > 0",
        Threshold("rail_missing_for", "30s", "Long enough for a device that is reset; a job has lost it at once."),
        "A node has fewer rails than it should have.",
        f"{INSTANCE} lacks <$value> of its rails"
        f"<range {asked(GONE)}>; <.Labels.device>:<.Labels.port> disappeared<end>. "
        "First step: `dmesg` and `lspci` on the node.",
        when=USED,
        otherwise="warning",
    ),
    Alert(
        "IBPulseLinkWentDown",
        "warning",
        f"{summed('increase', CHANGES, '<drop_window>')} >= <link_changes>\nand on ({PORT}) {RAILS}",
        AT_ONCE,
        "The link of a rail went down and came back.",
        f'The link of port {PORT_NAME} changed its state <$value | printf "%.0f"> times in the last <drop_window>. '
        "A collective that uses it at that moment fails or waits. First step: count the drops of this cable today.",
        (
            fixed("drop_window", "5m", "Longer than two scrapes of a minute."),
            Threshold("link_changes", "2", "Down and up once. NVSentinel: any, and fatal."),
        ),
    ),
    Alert(
        "IBPulseRailTrainedDown",
        "warning",
        f"{newest('ibpulse_port_trained_down')} == 1",
        fixed("trained_down_for", "30s", "A link that trains again passes through lower rates for seconds."),
        "A rail's link runs at a lower rate than other rails of its make.",
        f"Port {PORT_NAME} is ACTIVE, but slower than other rails of the same make on its node"
        f'<range {asked(GBITS, PORT)}>: <.Value | printf "%.0f"> Gb/s<end>'
        f'<range {asked(GBITS)}>, the fastest has <.Value | printf "%.0f"> Gb/s<end>. '
        "First step: reseat or replace the cable when the node is free.",
    ),
    Alert(
        "IBPulseSymbolErrors",
        "warning",
        f"{summed('rate', SYMBOLS, '<symbol_window>')}\n"
        f"/ on ({PORT}) (8 * {newest('ibpulse_port_rate_bytes_per_second')}) * 1e15 > <symbol_errors>\n"
        f"and on ({PORT}) {summed('increase', SYMBOLS, '<symbol_recent>')} > 0",
        fixed("symbol_for", "15m", "A link that comes up counts errors for a moment; these go on."),
        "A link has too many symbol errors for the bytes that it can carry.",
        f"Port {PORT_NAME} counts <$value | humanize> symbol errors per 10^15 bits. "
        "First step: clean, reseat or replace the cable when the node is free.",
        (
            fixed("symbol_window", "1h", "At 400 Gb/s, 10^15 bits take 42 minutes."),
            fixed("symbol_recent", "15m", "The errors have not stopped."),
            Threshold(
                "symbol_errors",
                "10",
                "Per 10^15 bits: a bit error ratio of 1e-14. NVSentinel: 120 an hour at any rate.",
            ),
        ),
    ),
    Alert(
        "IBPulseAckTimeouts",
        "warning",
        f"{summed('increase', 'ibpulse_local_ack_timeout_errors_total', '<ack_window>')} > <ack_timeouts>\n"
        f"and on ({PORT}) {RAILS}",
        AT_ONCE,
        "A rail gets no acknowledgements from its peers.",
        f'Port {PORT_NAME} waited in vain for <$value | printf "%.0f"> acknowledgements in the last <ack_window>: '
        "packets were lost, a path is dead, or a peer's process was killed. "
        "First step: see whether other nodes have it too.",
        (
            fixed("ack_window", "5m", "Each timeout is repeated several times before the connection fails."),
            Threshold("ack_timeouts", "3", "A single one is repaired by a retransmission. NVSentinel: one per second."),
        ),
    ),
)
RAIL = (
    Alert(
        "IBPulseRailIdle",
        "warning",
        f"{newest('ibpulse_port_rail_idle')} == 1\nand on ({PORT}) {UP} == 1",
        Threshold(
            "rail_idle_for", "1m", "The exporter has already compared seconds; a minute outlasts a phase of one rail."
        ),
        "A rail is idle while its siblings carry traffic.",
        f"Port {PORT_NAME} has carried no traffic for <rail_idle_for> while the other rails of its job, or of the "
        "node if no job is known, have, and its link is up. First step: check the job's device list (NCCL_IB_HCA).",
    ),
    Alert(
        "IBPulseRailSlow",
        "warning",
        f"{newest('ibpulse_port_rail_slow')} == 1",
        Threshold(
            "rail_slow_for", "1m", "The exporter compares whole seconds; a minute outlasts an uneven collective."
        ),
        "A rail carries much less than its siblings.",
        f"Port {PORT_NAME} has carried less than three quarters of the median of the other rails of its job, or of the "
        f"node if no job is known, for <rail_slow_for><range {asked(f'max({CARRIED})', PORT)}>; in the last 5m "
        f'<.Value | printf "%.1f"> GB/s<end><range {asked(MEDIAN)}>, where the median rail of the node carried '
        '<.Value | printf "%.1f"><end>. In a collective, the slowest rail sets the pace. '
        "First step: compare its link rate, PCIe rate and congestion counters with those of the others.",
    ),
    Alert(
        "IBPulsePcieDegraded",
        "warning",
        f"{PCIE[0]} / {PCIE[1]} < <pcie_ratio>",
        Threshold("pcie_for", "15m", "Links slow down to save power; a slow link that persists is a fault."),
        "A device's PCIe link runs below the speed or width that both its ends support.",
        f"The PCIe path of {DEVICE_NAME} runs at <$value | humanizePercentage> of "
        "its possible rate: a link trained at a lower speed or width. First step: reseat the card, or check the slot.",
        (
            fixed(
                "pcie_ratio",
                "0.99",
                "Speeds and widths change by factors of two: any loss is far below this.",
            ),
        ),
    ),
)
FABRIC = (*LINKS, *RAIL)


STATISTICS = f"max by ({NODE}) (ibpulse_build_info)"
SHARE = "job:ibpulse_silent_exporters:ratio > <missing_share>"


def _because(expr: str, reason: str) -> str:
    return f'label_replace({expr}, "reason", "{reason}", "", "")'


UNRELIABLE = Alert(
    "IBPulseUnreliable",
    "warning",
    "\nor ".join(
        (
            f"max by ({PORT}, reason) (ibpulse_unreliable) == 1",
            # a rack without power is one alert, not one for each of its nodes
            _because(f"{EXPORTERS} == 0 unless on ({FLEET}) {SHARE}", "no-answer"),
            _because(f"{EXPORTERS} == 1 unless on ({NODE}) {STATISTICS}", "no-statistics"),
            _because(SHARE, "exporters-missing"),
            _because("cluster:ibpulse_missing_nodes:ratio > <missing_share>", "exporters-missing"),
            _because(f"absent({targets()})", "exporters-missing"),
        )
    ),
    Threshold("unreliable_for", "10m", "Updates, reboots and builds are over by then."),
    "The numbers of ibpulse cannot be trusted, or there are none.",
    "The numbers of <if $labels.instance><$labels.instance><else>a part of the fleet<end> cannot be trusted: "
    "<$labels.reason><if $labels.device>, <$labels.device><end><if $labels.port>:<$labels.port><end>. Jobs are not "
    "affected. First step: `ibpulse doctor` on the node, or, without an answer, the pod and the node itself.",
    (Threshold("missing_share", "0.05", "Single nodes have alerts of their own, and some are always rebooting."),),
)

GROUPS = {"ibpulse-traffic": JOBS, "ibpulse-rails": FABRIC, "ibpulse-truth": (UNRELIABLE,)}
COMPONENTS = {"ibpulse-traffic": "job", "ibpulse-rails": "fabric", "ibpulse-truth": "instrument"}
"""The label `component` of the alerts of each group."""
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)
