"""The alerts: each wakes somebody only for a reason, and its runbook says how sure it is. It must not write files.

`<name>` stands for a number of the table of thresholds. Expressions keep the labels of the node, and of the port or the
device where there is one. A label that guesses (the signature) wakes nobody: its alerts are warnings.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.grafana.recording_rules import NODE, PORT

PORT_NAME = "{{ $labels.device }}:{{ $labels.port }} on {{ $labels.instance }}"
INSTANCE = "{{ $labels.instance }}"
RAIL = f'max by ({PORT}) (ibpulse_port_info{{rail="true"}})'


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert; `hold` names the threshold that is its `for`, `board` the dashboard that shows it."""

    name: str
    severity: str
    expr: str
    hold: str
    summary: str
    description: str
    board: str = "ibpulse-node"


TRAFFIC = (
    Alert(
        "IBPulseSustainedMoESaturation",
        "warning",
        f"(instance:ibpulse_moe_saturated:ratio > <moe_share>)\nand on ({NODE}) (ibpulse_node_moe_saturated == 1)",
        "moe_for",
        "The node's traffic looks like MoE training that has saturated its rails.",
        f"{INSTANCE} spent {{{{ $value | humanizePercentage }}}} of the last <moe_window> in sustained MoE "
        "saturation: traffic that resembles mixture-of-experts training, almost always active, with peaks near the "
        "line rate. The resemblance is a guess by shape; the duty cycle and the peaks are measured.",
    ),
    Alert(
        "IBPulsePortSaturated",
        "warning",
        "rate(ibpulse_port_transmit_saturated_seconds_total[<saturated_window>]) > <saturated_share>\n"
        "or rate(ibpulse_port_receive_saturated_seconds_total[<saturated_window>]) > <saturated_share>",
        "saturated_for",
        "A port is at its line rate almost all the time.",
        f"Port {PORT_NAME} was saturated for {{{{ $value | humanizePercentage }}}} of the last <saturated_window>: "
        "the median of its 10 ms samples stood near the line rate, so more traffic only waits longer.",
    ),
    Alert(
        "IBPulseTrafficStalled",
        "warning",
        f'(ibpulse_node_duty_cycle_ratio{{window="10s"}} == 0)\n'
        f"and on ({NODE}) (count_over_time(instance:ibpulse_step_period_seconds:scored[<stall_memory>]) > "
        "<stall_steps>)",
        "stall_for",
        "Training traffic was regular and has stopped.",
        f"No rail of {INSTANCE} carried traffic for <stall_for> and more, after regular steps within the last "
        "<stall_memory>. The job hangs, or it has ended: the scheduler knows which.",
    ),
    Alert(
        "IBPulseStepTimeRegressed",
        "info",
        "(\n"
        "  quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[<step_recent>])\n"
        "  / quantile_over_time(0.5, instance:ibpulse_step_period_seconds:scored[<step_memory>] offset <step_recent>)\n"
        ") > <step_slower> < <step_other_job>",
        "step_for",
        "The training step became longer.",
        f"The step of {INSTANCE}, as the wire shows it, takes {{{{ $value | humanize }}}} times as long in the "
        "last <step_recent> as in the <step_memory> before.",
    ),
)

RAILS = (
    Alert(
        "IBPulseRailIdle",
        "warning",
        f"(ibpulse_port_rail_idle == 1)\nand on ({PORT}) (ibpulse_port_up == 1)",
        "rail_idle_for",
        "A rail carries nothing while its siblings work.",
        f"Port {PORT_NAME} has carried no traffic for <rail_idle_for> while the other rails of the node do. The "
        "link is up, or another alert would say so: look at the job's device list, at routing, and whether the "
        "counters still count.",
    ),
    Alert(
        "IBPulseRailSlow",
        "warning",
        "ibpulse_port_rail_slow == 1",
        "rail_slow_for",
        "A rail carries much less than its siblings.",
        f"Port {PORT_NAME} has carried less than three quarters of the median rail of its node for "
        "<rail_slow_for>. In a collective the slowest rail sets the pace of all.",
    ),
    Alert(
        "IBPulseRailMissing",
        "critical",
        "(max_over_time(ibpulse_node_rails[<rail_missing_memory>]) - ibpulse_node_rails) > 0",
        "rail_missing_for",
        "A rail has gone from the node.",
        f"{INSTANCE} is short of {{{{ $value }}}} of the rails that it had within the last <rail_missing_memory>: a "
        "device has vanished from the kernel's list, or has no counters any more.",
    ),
    Alert(
        "IBPulsePortDown",
        "critical",
        f"(ibpulse_port_up == 0)\nand on ({PORT}) {RAIL}",
        "port_down_for",
        "A rail's port is down.",
        f"Port {PORT_NAME} has not been ACTIVE for <port_down_for>.",
    ),
    Alert(
        "IBPulsePortFlapping",
        "warning",
        "changes(ibpulse_port_up[<flap_window>]) > <flap_changes>",
        "at_once",
        "A port goes up and down.",
        f"Port {PORT_NAME} changed between up and down {{{{ $value }}}} times in the last <flap_window>.",
    ),
    Alert(
        "IBPulsePcieDegraded",
        "warning",
        "(ibpulse_device_pcie_bytes_per_second / ibpulse_device_pcie_max_bytes_per_second) < <pcie_ratio>",
        "pcie_for",
        "A device's PCIe link runs below what both its ends can do.",
        "The path of {{ $labels.device }} on {{ $labels.instance }} carries {{ $value | humanizePercentage }} of "
        "what its links could. It is a link that trained down, in speed or in width: reseat the card, or look at the "
        "slot.",
    ),
)

TRUTH = (
    Alert(
        "IBPulseCounterSourceDegraded",
        "warning",
        "(ibpulse_port_effective_resolution_seconds / ibpulse_port_sampling_interval_seconds) > <degraded_factor>",
        "degraded_for",
        "A port's counters change more slowly than they are read.",
        f"The counters of port {PORT_NAME} change only every {{{{ $value | humanize }}}} samples under traffic. "
        "Peaks, duty cycle and burstiness of this port are smeared over that time; bytes and means are right.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseIntervalLengthened",
        "info",
        "ibpulse_device_interval_lengthened == 1",
        "lengthened_for",
        "A device is sampled more slowly because its reads take long.",
        "Reads of {{ $labels.device }} on {{ $labels.instance }} take so long that ibpulse reads it at a longer "
        "interval than the others. Its numbers are true at that longer time scale.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseReadsFailing",
        "warning",
        "(ibpulse_port_left_alone == 1)\n"
        "or (\n"
        "  rate(ibpulse_sampler_read_errors_total[<read_errors_window>])\n"
        f"  / on ({NODE}) group_left () rate(ibpulse_sampler_ticks_total[<read_errors_window>]) > <read_errors_ratio>\n"
        ")",
        "read_errors_for",
        "A port's counters cannot be read.",
        f"Reads of the byte counters of port {PORT_NAME} fail. What was not read is a hole in all numbers, never zero.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseCountersReset",
        "info",
        "increase(ibpulse_port_resets_total[<reset_window>]) > <reset_count>",
        "at_once",
        "A port's counters are reset again and again.",
        f"The counters of port {PORT_NAME} were reset {{{{ $value | humanize }}}} times in the last "
        "<reset_window>. Some tool clears them, or the firmware restarts; errors counted in between are lost to "
        "every reader.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseDeviceQuarantined",
        "warning",
        "ibpulse_device_quarantined == 1",
        "quarantine_for",
        "A device hangs when it is read.",
        "A read of {{ $labels.device }} on {{ $labels.instance }} hung; the device has been sampled by a process of "
        "its own for <quarantine_for>. The other devices are not affected.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseSamplerMissingTicks",
        "warning",
        "instance:ibpulse_missed_ticks:ratio > <missed_ratio>",
        "missed_for",
        "The sampler comes too late for its ticks.",
        f"{INSTANCE} missed {{{{ $value | humanizePercentage }}}} of its ticks in the last <missed_window>. Missed "
        "ticks are holes: short peaks may lie in them.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseSamplerDown",
        "critical",
        "ibpulse_sampler_heartbeat_age_seconds > <heartbeat_age>",
        "sampler_for",
        "The sampler gives no sign of life.",
        f"The sampler of {INSTANCE} has given no sign of life for {{{{ $value | humanizeDuration }}}}; no counter "
        "is read.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseExporterDown",
        "critical",
        'up{job=~"<jobs>"} == 0',
        "exporter_for",
        "An exporter cannot be scraped.",
        f"Prometheus has not been able to scrape {INSTANCE} for <exporter_for>.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseCpuThrottled",
        "warning",
        "rate(ibpulse_cgroup_throttled_periods_total[10m]) > <throttled_rate>",
        "throttled_for",
        "A CPU limit throttles the exporter.",
        f"The kernel throttles the exporter of {INSTANCE} in {{{{ $value | humanize }}}} periods a second. Each "
        "costs ticks: remove the CPU limit, a request is enough.",
        "ibpulse-exporter",
    ),
    Alert(
        "IBPulseRecorderFailing",
        "warning",
        "increase(ibpulse_capture_errors_total[<recorder_window>]) > 0",
        "at_once",
        "Captures cannot be written.",
        f"Captures that the flight recorder of {INSTANCE} could not write in the last <recorder_window>: "
        "{{ $value | humanize }}. Its log says why.",
        "ibpulse-exporter",
    ),
)

GROUPS = {"ibpulse-traffic": TRAFFIC, "ibpulse-rails": RAILS, "ibpulse-truth": TRUTH}
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)
