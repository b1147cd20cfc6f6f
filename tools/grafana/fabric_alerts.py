"""The alerts about rails, links and cards. Two page someone: what kills or blocks a job."""

from __future__ import annotations

from tools.grafana.alert import AT_ONCE, DEVICE_NAME, INSTANCE, PORT_NAME, USED, Alert, asked
from tools.grafana.rule_levels import DEVICE, NODE, PORT, RAILS, newest, summed
from tools.grafana.rule_numbers import Threshold, fixed

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
