"""The alerts, one entry each with its thresholds. Their runbooks are `docs/runbooks/<name>.md`.

Placeholders in angle brackets are explained in `rule_numbers`. Expressions keep the labels of the node, and those of
the port or the device where there is one. The signature is a guess, so its alerts are warnings and never page anyone.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.grafana.recording_rules import MISSED_WINDOW, MOE_WINDOW, NODE, PORT, RAILS, SATURATED_WINDOW
from tools.grafana.rule_numbers import Threshold, fixed

INSTANCE = "<$labels.instance>"
DEVICE_NAME = f"<$labels.device> on {INSTANCE}"
PORT_NAME = f"<$labels.device>:<$labels.port> on {INSTANCE}"
AT_ONCE = fixed("at_once", "0s", "The expression already covers a time window.")


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
        Threshold(
            "moe_for", "5m", "Long enough for the state to persist until you take a capture or open the live page."
        ),
        "The node's traffic looks like MoE training that saturates its rails.",
        f"{INSTANCE} spent <$value | humanizePercentage> of the last <moe_window> in sustained MoE "
        "saturation: traffic that resembles mixture-of-experts training, almost always active, with peaks near the "
        "line rate. The resemblance is a guess from the shape; the duty cycle and the peaks are measured.",
        (
            MOE_WINDOW,
            Threshold(
                "moe_share",
                "0.8",
                "The state already has a hold time of its own; 80 % of the window leaves room for checkpoints.",
            ),
        ),
    ),
    Alert(
        "IBPulsePortSaturated",
        "warning",
        "rate(ibpulse_port_transmit_saturated_seconds_total[<saturated_window>]) > <saturated_share>\n"
        "or rate(ibpulse_port_receive_saturated_seconds_total[<saturated_window>]) > <saturated_share>",
        Threshold("saturated_for", "5m", "The window already filters short peaks; this only tolerates a late scrape."),
        "A port is at its line rate almost all the time.",
        f"Port {PORT_NAME} was saturated for <$value | humanizePercentage> of the last <saturated_window>: "
        "the median of its 10 ms samples was near the line rate. More traffic would only wait longer.",
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
        f'(ibpulse_node_duty_cycle_ratio{{window="10s"}} == 0)\n'
        f"and on ({NODE}) (count_over_time(instance:ibpulse_step_period_seconds:scored[<stall_memory>]) > "
        "<stall_steps>)",
        Threshold(
            "stall_for",
            "3m",
            "NCCL's watchdog waits ten minutes by default: this alert fires earlier, but not during a checkpoint.",
        ),
        "Regular training traffic has stopped.",
        f"No rail of {INSTANCE} has carried traffic for <stall_for> or longer, after regular steps within the last "
        "<stall_memory>. The job hangs or has ended; check the scheduler.",
        (
            fixed("stall_memory", "30m", "Only after recent regular steps is silence suspicious."),
            fixed("stall_steps", "10", "Evaluations with a clear period within that time: a job rather than a test."),
        ),
    ),
    Alert(
        "IBPulseStepTimeRegressed",
        "info",
        "(\n"
        "  quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[<step_recent>])\n"
        "  / quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[<step_memory>] offset <step_recent>)\n"
        ") > <step_slower> < <step_other_job>",
        Threshold("step_for", "5m", "One evaluation phase may make a few steps longer."),
        "The training step has become longer.",
        f"The step of {INSTANCE}, as seen in its traffic, took <$value | humanize> times as long in the "
        "last <step_recent> as in the <step_memory> before.",
        (
            fixed("step_recent", "10m", "The median of ten minutes ignores single wrong windows."),
            fixed("step_memory", "1h", "The reference that the step is compared with."),
            Threshold("step_slower", "1.1", "10 % longer; the period itself is accurate to 1 or 2 %."),
            fixed(
                "step_other_job",
                "2",
                "A step twice as long means another job, or a period that spans two steps.",
            ),
        ),
    ),
)

RAIL = (
    Alert(
        "IBPulseRailIdle",
        "warning",
        f"(ibpulse_port_rail_idle == 1)\nand on ({PORT}) (ibpulse_port_up == 1)",
        Threshold("rail_idle_for", "5m", "A starting job uses all its rails within a minute or two."),
        "A rail is idle while its siblings carry traffic.",
        f"Port {PORT_NAME} has carried no traffic for <rail_idle_for> while the other rails of its job, or of the "
        "node if no job is known, have. The link is up, or another alert would fire: check the job's device list, the "
        "routing, and whether the counters still count.",
    ),
    Alert(
        "IBPulseRailSlow",
        "warning",
        "ibpulse_port_rail_slow == 1",
        Threshold(
            "rail_slow_for", "10m", "The exporter compares whole seconds; ten minutes outlast a noisy neighbour."
        ),
        "A rail carries much less than its siblings.",
        f"Port {PORT_NAME} has carried less than three quarters of the median of the other rails of its job, or of the "
        "node if no job is known, for <rail_slow_for>. In a collective, the slowest rail sets the pace.",
    ),
    Alert(
        "IBPulseRailMissing",
        "critical",
        "(max_over_time(ibpulse_node_rails[<rail_missing_memory>]) - ibpulse_node_rails) > 0",
        Threshold("rail_missing_for", "2m", "A driver reload brings a device back in well under two minutes."),
        "A rail has disappeared from the node.",
        f"{INSTANCE} has <$value> fewer rails than at some time within the last <rail_missing_memory>: a "
        "device has disappeared from the kernel's list or no longer has counters.",
        (fixed("rail_missing_memory", "1h", "The alert compares with the highest number of rails in this span."),),
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
        "A port keeps going up and down.",
        f"Port {PORT_NAME} changed between up and down <$value> times in the last <flap_window>.",
        (
            fixed("flap_window", "15m", "Flaps this close together have the same cause."),
            Threshold(
                "flap_changes",
                "4",
                "Going down and up is two changes; a planned restart makes two, a driver reload can make four.",
            ),
        ),
    ),
    Alert(
        "IBPulsePcieDegraded",
        "warning",
        "(ibpulse_device_pcie_bytes_per_second / ibpulse_device_pcie_max_bytes_per_second) < <pcie_ratio>",
        Threshold("pcie_for", "15m", "Links slow down to save power; a slow link that persists is a fault."),
        "A device's PCIe link runs below the speed or width that both its ends support.",
        f"The PCIe path of {DEVICE_NAME} runs at <$value | humanizePercentage> of "
        "its possible rate. A link trained at a lower speed or width: reseat the card, or check the "
        "slot.",
        (
            fixed(
                "pcie_ratio",
                "0.99",
                "Speeds and widths change by factors of two: any loss is far below this.",
            ),
        ),
    ),
)

EXPORTER = (
    Alert(
        "IBPulseCounterSourceDegraded",
        "warning",
        "(ibpulse_port_effective_resolution_seconds / ibpulse_port_sampling_interval_seconds) > <degraded_factor>",
        Threshold("degraded_for", "10m", "The resolution is a quartile over a minute; ten minutes confirm it."),
        "A port's counters are updated less often than they are read.",
        f"The counters of port {PORT_NAME} change only every <$value | humanize> samples under traffic. "
        "Peaks, duty cycle and burstiness of this port are smeared over that time; bytes and means are correct.",
        (Threshold("degraded_factor", "2", "Jitter and quiet minutes never reach twice the sampling interval."),),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseIntervalLengthened",
        "info",
        "ibpulse_device_interval_lengthened == 1",
        Threshold("lengthened_for", "15m", "The daemon shortens the interval again when the device recovers."),
        "A device is sampled less often because its reads are slow.",
        f"Reads of {DEVICE_NAME} take so long that ibpulse samples it at a longer "
        "interval than the other devices. Its numbers are correct at that longer interval.",
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
        f"Reads of the byte counters of port {PORT_NAME} fail. Failed reads are missing data, never zeros.",
        (
            fixed("read_errors_window", "10m", "A device being reset fails for seconds only."),
            Threshold("read_errors_ratio", "0.01", "Fewer than 1 % of missing samples do not affect the statistics."),
        ),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseCountersReset",
        "info",
        "increase(ibpulse_port_resets_total[<reset_window>]) > <reset_count>",
        AT_ONCE,
        "A port's counters are reset repeatedly.",
        f"The counters of port {PORT_NAME} were reset <$value | humanize> times in the last "
        "<reset_window>. Some tool clears them, or the firmware restarts; errors counted in between are lost to "
        "every reader.",
        (
            fixed("reset_window", "15m", "A single reset is harmless; repeated resets are not."),
            Threshold(
                "reset_count", "2", "A driver reload, or clearing the counters twice by hand, causes two resets."
            ),
        ),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseDeviceQuarantined",
        "warning",
        "ibpulse_device_quarantined == 1",
        Threshold("quarantine_for", "5m", "A device that hung once leaves quarantine after ten steady seconds."),
        "A device hangs when it is read.",
        f"A read of {DEVICE_NAME} hung; the device has been quarantined (sampled by a separate process) for "
        "<quarantine_for>. The other devices are not affected.",
        board="ibpulse-exporter",
    ),
    Alert(
        "IBPulseSamplerMissingTicks",
        "warning",
        "instance:ibpulse_missed_ticks:ratio > <missed_ratio>",
        Threshold("missed_for", "10m", "A booting node or a running build is done by then."),
        "The sampler misses samples.",
        f"{INSTANCE} missed <$value | humanizePercentage> of its samples in the last <missed_window>. Short "
        "peaks may be hidden in the missing samples.",
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
        f"The sampler of {INSTANCE} has not sent a heartbeat for <$value | humanizeDuration>; no counters are read.",
        (fixed("heartbeat_age", "10", "Seconds. The supervisor restarts a silent sampler within three seconds."),),
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseExporterDown",
        "critical",
        # a gateway is no exporter: without it, every node is still watched
        'up{job=~"<jobs>",job!~".*-gateway"} == 0',
        Threshold("exporter_for", "5m", "A rolling update restarts a node's pod within a minute or two."),
        "An exporter cannot be scraped.",
        f"Prometheus has not been able to scrape {INSTANCE} for <exporter_for>.",
        board="ibpulse-exporter",
    ),
    Alert(
        "IBPulseCpuThrottled",
        "warning",
        "rate(ibpulse_cgroup_throttled_periods_total[<throttled_window>]) > <throttled_rate>",
        fixed("throttled_for", "10m", "A process needs more CPU in its first minutes than later."),
        "A CPU limit throttles the exporter.",
        f"The kernel throttles the exporter of {INSTANCE} in <$value | humanize> periods per second. Each "
        "costs samples: remove the CPU limit; a request is enough.",
        (
            fixed("throttled_window", "10m", "A build or a log rotation is over by then."),
            Threshold(
                "throttled_rate",
                "0.1",
                "Throttled periods per second: one in a hundred, as there are ten periods per second.",
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
        f"The flight recorder of {INSTANCE} failed to write <$value | humanize> captures in the last "
        "<recorder_window>. Its log gives the reason.",
        (fixed("recorder_window", "15m", "One alert per failing capture, not one per scrape."),),
        "ibpulse-exporter",
    ),
)

GROUPS = {"ibpulse-traffic": TRAFFIC, "ibpulse-rails": RAIL, "ibpulse-truth": EXPORTER}
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)
