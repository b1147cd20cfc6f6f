"""The alerts: one row each, with the thresholds that belong to it. Its runbook is `docs/runbooks/<name>.md`.

Places in angle brackets are explained in `thresholds`. Expressions keep the labels of the node, and of the port or the
device where there is one. The signature is a guess and pages nobody: its alerts are warnings.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.grafana.recording_rules import MISSED_WINDOW, MOE_WINDOW, NODE, PORT, RAILS, SATURATED_WINDOW
from tools.grafana.rule_numbers import Threshold, fixed

INSTANCE = "<$labels.instance>"
DEVICE_NAME = f"<$labels.device> on {INSTANCE}"
PORT_NAME = f"<$labels.device>:<$labels.port> on {INSTANCE}"
AT_ONCE = fixed("at_once", "0s", "The expression itself looks back over a window.")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: `hold` is its `for`, `numbers` are its other thresholds, `board` is the dashboard that shows it."""

    name: str
    severity: str
    expr: str
    hold: Threshold
    summary: str
    description: str
    numbers: tuple[Threshold, ...] = ()
    board: str = "ibpulse-node"


TRAFFIC = (
    Alert(
        "IBPulseSustainedMoESaturation",
        "warning",
        f"(instance:ibpulse_moe_saturated:ratio > <moe_share>)\nand on ({NODE}) (ibpulse_node_moe_saturated == 1)",
        Threshold("moe_for", "5m", "Long enough to take a capture and check the live page while it lasts."),
        "The node's traffic looks like MoE training that has saturated its rails.",
        f"{INSTANCE} spent <$value | humanizePercentage> of the last <moe_window> in sustained MoE "
        "saturation: traffic that resembles mixture-of-experts training, almost always active, with peaks near the "
        "line rate. The resemblance is a guess by shape; the duty cycle and the peaks are measured.",
        (
            MOE_WINDOW,
            Threshold(
                "moe_share",
                "0.8",
                "The state already has a hold time of its own; four fifths of the window leave room for checkpoints.",
            ),
        ),
    ),
    Alert(
        "IBPulsePortSaturated",
        "warning",
        "rate(ibpulse_port_transmit_saturated_seconds_total[<saturated_window>]) > <saturated_share>\n"
        "or rate(ibpulse_port_receive_saturated_seconds_total[<saturated_window>]) > <saturated_share>",
        Threshold("saturated_for", "5m", "The window has already waited; this only rides over one late scrape."),
        "A port is at its line rate almost all the time.",
        f"Port {PORT_NAME} was saturated for <$value | humanizePercentage> of the last <saturated_window>: "
        "the median of its 10 ms samples stood near the line rate, so more traffic only waits longer.",
        (
            SATURATED_WINDOW,
            Threshold(
                "saturated_share",
                "0.9",
                "A link that is at its median limit nine tenths of the time has no room left to grow.",
            ),
        ),
    ),
    Alert(
        "IBPulseTrafficStalled",
        "warning",
        f'(ibpulse_node_duty_cycle_ratio{{window="10s"}} == 0)\n'
        f"and on ({NODE}) (count_over_time(instance:ibpulse_step_period_seconds:scored[<stall_memory>]) > "
        "<stall_steps>)",
        Threshold(
            "stall_for",
            "3m",
            "NCCL's watchdog waits ten minutes by default: this says it earlier, after a checkpoint's time.",
        ),
        "Training traffic was regular and has stopped.",
        f"No rail of {INSTANCE} carried traffic for <stall_for> and more, after regular steps within the last "
        "<stall_memory>. The job hangs, or it has ended: the scheduler knows which.",
        (
            fixed(
                "stall_memory", "30m", "Regular steps within this time make silence remarkable; then it is old news."
            ),
            fixed("stall_steps", "10", "Evaluations with a clear period within that time: a job, not a test."),
        ),
    ),
    Alert(
        "IBPulseStepTimeRegressed",
        "info",
        "(\n"
        "  quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[<step_recent>])\n"
        "  / quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[<step_memory>] offset <step_recent>)\n"
        ") > <step_slower> < <step_other_job>",
        Threshold("step_for", "5m", "One evaluation phase may lengthen a few steps."),
        "The training step became longer.",
        f"The step of {INSTANCE}, as the wire shows it, takes <$value | humanize> times as long in the "
        "last <step_recent> as in the <step_memory> before.",
        (
            fixed("step_recent", "10m", "The median of ten minutes ignores single wrong windows."),
            fixed("step_memory", "1h", "What the step is compared with."),
            Threshold("step_slower", "1.1", "Ten per cent; the period itself is good to a per cent or two."),
            fixed(
                "step_other_job",
                "2",
                "Twice as long is not a slower step but another job, or every second step missed.",
            ),
        ),
    ),
)

RAIL = (
    Alert(
        "IBPulseRailIdle",
        "warning",
        f"(ibpulse_port_rail_idle == 1)\nand on ({PORT}) (ibpulse_port_up == 1)",
        Threshold("rail_idle_for", "5m", "A job that starts reaches all rails within a minute or two."),
        "A rail carries nothing while its siblings work.",
        f"Port {PORT_NAME} has carried no traffic for <rail_idle_for> while the other rails of the node do. The "
        "link is up, or another alert would say so: look at the job's device list, at routing, and whether the "
        "counters still count.",
    ),
    Alert(
        "IBPulseRailSlow",
        "warning",
        "ibpulse_port_rail_slow == 1",
        Threshold(
            "rail_slow_for", "10m", "The exporter compares whole seconds; ten minutes outlast a noisy neighbour."
        ),
        "A rail carries much less than its siblings.",
        f"Port {PORT_NAME} has carried less than three quarters of the median rail of its node for "
        "<rail_slow_for>. In a collective the slowest rail sets the pace of all.",
    ),
    Alert(
        "IBPulseRailMissing",
        "critical",
        "(max_over_time(ibpulse_node_rails[<rail_missing_memory>]) - ibpulse_node_rails) > 0",
        Threshold("rail_missing_for", "2m", "A driver reload brings a device back in well under two minutes."),
        "A rail has disappeared from the node.",
        f"{INSTANCE} is short of <$value> of the rails that it had within the last <rail_missing_memory>: a "
        "device has vanished from the kernel's list, or has no counters any more.",
        (fixed("rail_missing_memory", "1h", "How long the number of rails a node had is remembered."),),
    ),
    Alert(
        "IBPulsePortDown",
        "critical",
        f"(ibpulse_port_up == 0)\nand on ({PORT}) {RAILS}",
        Threshold("port_down_for", "2m", "A link that retrains is up again within seconds to a minute."),
        "A rail's port is down.",
        f"Port {PORT_NAME} has not been ACTIVE for <port_down_for>.",
    ),
    Alert(
        "IBPulsePortFlapping",
        "warning",
        "changes(ibpulse_port_up[<flap_window>]) > <flap_changes>",
        AT_ONCE,
        "A port goes up and down.",
        f"Port {PORT_NAME} changed between up and down <$value> times in the last <flap_window>.",
        (
            fixed("flap_window", "15m", "Flaps closer than this belong to one fault."),
            Threshold(
                "flap_changes",
                "4",
                "Up and down are two changes; a planned restart makes two, a driver reload can make four.",
            ),
        ),
    ),
    Alert(
        "IBPulsePcieDegraded",
        "warning",
        "(ibpulse_device_pcie_bytes_per_second / ibpulse_device_pcie_max_bytes_per_second) < <pcie_ratio>",
        Threshold("pcie_for", "15m", "Links change speed to save power; what stays for a quarter hour is a fault."),
        "A device's PCIe link runs below the capability of both its ends.",
        f"The path of {DEVICE_NAME} carries <$value | humanizePercentage> of "
        "what its links could. It is a link that trained down, in speed or in width: reseat the card, or look at the "
        "slot.",
        (
            fixed(
                "pcie_ratio",
                "0.99",
                "Speeds and widths are whole steps of a factor of two: any loss is far below this.",
            ),
        ),
    ),
)

EXPORTER = (
    Alert(
        "IBPulseCounterSourceDegraded",
        "warning",
        "(ibpulse_port_effective_resolution_seconds / ibpulse_port_sampling_interval_seconds) > <degraded_factor>",
        Threshold("degraded_for", "10m", "The resolution is a quartile of a minute; ten of them agree."),
        "A port's counters change more slowly than they are read.",
        f"The counters of port {PORT_NAME} change only every <$value | humanize> samples under traffic. "
        "Peaks, duty cycle and burstiness of this port are smeared over that time; bytes and means are right.",
        (
            Threshold(
                "degraded_factor", "2", "Twice the sampling interval is beyond what jitter or a quiet minute produce."
            ),
        ),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseIntervalLengthened",
        "info",
        "ibpulse_device_interval_lengthened == 1",
        Threshold(
            "lengthened_for", "15m", "The daemon shortens the interval again by itself when the device recovers."
        ),
        "A device is sampled more slowly because its reads take long.",
        f"Reads of {DEVICE_NAME} take so long that ibpulse reads it at a longer "
        "interval than the others. Its numbers are true at that longer time scale.",
        board="ibpulse-exporter",
    ),
    Alert(
        "IBPulseReadsFailing",
        "warning",
        "(ibpulse_port_left_alone == 1)\n"
        "or (\n"
        "  rate(ibpulse_sampler_read_errors_total[<read_errors_window>])\n"
        f"  / on ({NODE}) group_left () rate(ibpulse_sampler_ticks_total[<read_errors_window>]) > <read_errors_ratio>\n"
        ")",
        Threshold("read_errors_for", "10m", "A firmware reset is over by then."),
        "A port's counters cannot be read.",
        f"Reads of the byte counters of port {PORT_NAME} fail. Samples that could not be read are missing data, never "
        "zero.",
        (
            fixed("read_errors_window", "10m", "A device that is reset fails for seconds only."),
            Threshold(
                "read_errors_ratio", "0.01", "One read in a hundred: no statistic notices fewer missing samples."
            ),
        ),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseCountersReset",
        "info",
        "increase(ibpulse_port_resets_total[<reset_window>]) > <reset_count>",
        AT_ONCE,
        "A port's counters are reset again and again.",
        f"The counters of port {PORT_NAME} were reset <$value | humanize> times in the last "
        "<reset_window>. Some tool clears them, or the firmware restarts; errors counted in between are lost to "
        "every reader.",
        (
            fixed("reset_window", "15m", "One reset is somebody clearing counters; what matters is repetition."),
            Threshold(
                "reset_count", "2", "Two resets of one port in the window can be a driver reload and a second look."
            ),
        ),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseDeviceQuarantined",
        "warning",
        "ibpulse_device_quarantined == 1",
        Threshold("quarantine_for", "5m", "A device that hung once is let back after ten steady seconds."),
        "A device hangs when it is read.",
        f"A read of {DEVICE_NAME} hung; the device has been sampled by a process of "
        "its own for <quarantine_for>. The other devices are not affected.",
        board="ibpulse-exporter",
    ),
    Alert(
        "IBPulseSamplerMissingTicks",
        "warning",
        "instance:ibpulse_missed_ticks:ratio > <missed_ratio>",
        Threshold("missed_for", "10m", "A node that boots, or a build that runs, is over by then."),
        "The sampler misses samples.",
        f"{INSTANCE} missed <$value | humanizePercentage> of its samples in the last <missed_window>. Short "
        "peaks may be lost in the missing data.",
        (
            MISSED_WINDOW,
            Threshold(
                "missed_ratio",
                "0.01",
                "One sample in a hundred: below that, statistics do not change in their third digit.",
            ),
        ),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseSamplerDown",
        "critical",
        "ibpulse_sampler_heartbeat_age_seconds > <heartbeat_age>",
        Threshold("sampler_for", "2m", "A daemon that restarts needs seconds."),
        "The sampler sends no heartbeat.",
        f"The sampler of {INSTANCE} has sent no heartbeat for <$value | humanizeDuration>; no counters are read.",
        (fixed("heartbeat_age", "10", "Seconds. The supervisor restarts a silent sampler within three."),),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseExporterDown",
        "critical",
        'up{job=~"<jobs>"} == 0',
        Threshold("exporter_for", "5m", "A rolling update restarts a node's pod within a minute or two."),
        "An exporter cannot be scraped.",
        f"Prometheus has not been able to scrape {INSTANCE} for <exporter_for>.",
        board="ibpulse-exporter",
    ),
    Alert(
        "IBPulseCpuThrottled",
        "warning",
        "rate(ibpulse_cgroup_throttled_periods_total[<throttled_window>]) > <throttled_rate>",
        fixed("throttled_for", "10m", "The first minutes of a process cost more CPU than all later ones."),
        "A CPU limit throttles the exporter.",
        f"The kernel throttles the exporter of {INSTANCE} in <$value | humanize> periods a second. Each costs "
        "samples: remove the CPU limit; a request is enough.",
        (
            fixed("throttled_window", "10m", "A build or a log rotation is over within it."),
            Threshold(
                "throttled_rate",
                "0.1",
                "Throttled periods per second; of ten periods in a second that is one in a hundred.",
            ),
        ),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseRecorderFailing",
        "warning",
        "increase(ibpulse_capture_errors_total[<recorder_window>]) > 0",
        AT_ONCE,
        "Captures cannot be written.",
        f"Captures that the flight recorder of {INSTANCE} could not write in the last <recorder_window>: "
        "<$value | humanize>. Its log says why.",
        (fixed("recorder_window", "15m", "One alert per failing capture, not one per scrape."),),
        "ibpulse-exporter",
    ),
)

GROUPS = {"ibpulse-traffic": TRAFFIC, "ibpulse-rails": RAIL, "ibpulse-truth": EXPORTER}
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)
