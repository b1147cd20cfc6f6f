"""Ports of a node: link state, identity, and the counters that explain the traffic."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import colors, layout, links
from tools.grafana.panels import Link, PanelHead, lines, states
from tools.grafana.queries import Query, Scope, by_port
from tools.grafana.tables import Column, table

PORT_NAME = "{{device}}:{{port}}"
NOT_COUNTED = "These ports have no such counter: it depends on the driver and on slow.counters"

CONGESTION = {
    "np_ecn_marked_roce_packets_received": "marked packets received",
    "np_cnp_packets_sent": "notifications sent",
    "rp_cnp_packets_handled": "notifications obeyed",
    "roce_slow_restart_used": "slow restarts",
    "hw_impaired_remote_conn_events": "connections slowed down (EFA)",
}
LOSS = {
    "out_of_sequence_packets_received": "out of order",
    "packet_sequence_errors": "sequence NAKs",
    "duplicate_requests_packets": "duplicate requests",
    "rnr_nak_retry_packets_received": "receiver not ready",
    "local_ack_timeout_errors": "acknowledgement timeouts",
    "out_of_buffer_drops": "out of buffers",
    "req_transport_retries_exceeded": "retries exceeded",
    "roce_adp_retransmits": "adaptive retransmissions",
    "hw_retrans_segs": "retransmissions (irdma)",
    "hw_rc_resend": "retransmissions (hfi1)",
    "hw_tx_rdma_retx_pkts": "retransmissions (ionic)",
    "hw_retrans_pkts": "retransmissions (EFA)",
    "hw_retrans_timeout_events": "retransmission timeouts (EFA)",
    "hw_rx_drops": "receiver drops (EFA)",
    "hw_unresponsive_remote_events": "unresponsive remotes (EFA)",
}
ERRORS = {
    "symbol_error": "symbol errors",
    "link_error_recovery": "recoveries",
    "link_downed": "link downs",
    "port_errors_received": "bad packets received",
    "port_discards_transmitted": "packets discarded on sending",
    "port_carrier_changes": "carrier changes (RoCE)",
    "rx_icrc_encapsulated_errors": "bad ICRC (RoCE)",
}
WIDTHS = {
    "device": 80,
    "port": 50,
    "link_layer": 92,
    "rate": 168,
    "role": 80,
    "source": 85,
    "firmware": 102,
    "driver": 90,
    "board": 135,
    "pci_address": 120,
    "numa_node": 95,
    "netdev": 95,
    "guid": 165,
}
"""Widths of the columns of a table of ports, in pixels."""


def port_panels(scope: Scope) -> list[model.Panel]:
    """Panels about link states, line rates and identity of the ports."""
    return [
        states(
            PanelHead(
                "Is each link up?",
                "Whether each port is ACTIVE. The row of a device ends when it disappears from the kernel's list.",
                "none",
                "No port of these devices reports",
                width=12,
            ),
            [Query(by_port("max", scope.pick("ibpulse_port_up")), PORT_NAME)],
            colors.UP,
        ),
        lines(
            PanelHead(
                "At which rate does each link run?",
                "Data rate of one direction of each port. Absent while a port is not ACTIVE, because the kernel then "
                "shows a placeholder; a step down is a link that trained to a lower speed or width.",
                "Bps",
                "No port of these devices is ACTIVE",
                width=12,
            ),
            [Query(by_port("max", scope.pick("ibpulse_port_rate_bytes_per_second")), PORT_NAME)],
        ),
        _identity(scope),
    ]


def _identity(scope: Scope) -> model.Panel:
    labels = {
        "device": "Device",
        "port": "Port",
        "link_layer": "Link layer",
        "rate": "Rate",
        "role": "Role",
        "source": "Read from",
        "firmware": "Firmware",
        "driver": "Driver",
        "board": "Board",
        "pci_address": "PCI address",
        "numa_node": "NUMA node",
        "netdev": "Interface",
        "guid": "GUID",
    }
    return table(
        PanelHead(
            "What is each port?",
            "Identity according to the kernel, whether the port counts as a rail, and the files that its bytes are "
            "read from.",
            "none",
            "No port of these devices reports",
            width=24,
            height=11,
        ),
        [Column("", f"max by ({', '.join(labels)}) ({scope.pick('ibpulse_port_info')})", "none")],
        labels,
        sort=("Device",),
        ascending=True,
        widths={labels[label]: width for label, width in WIDTHS.items()},
    )


def wire_panels(scope: Scope) -> list[model.Panel]:
    """Panels about signs of limits, congestion, loss, link errors and PCIe."""
    limited = scope.rate("ibpulse_port_transmit_limit_seconds_total")
    return [
        lines(
            PanelHead(
                "What limited transmit, by its signs?",
                "Share of the time in which the rails transmit, by sign: the source was slower than usual without "
                "congestion; the path made the port wait or slowed it down; the receiver refused; packets were lost; "
                "the link had faults. usual-peak: nothing held it back. unknown: a counter is full or absent, or "
                "moved too little. A sign is no cause: a port sees neither switches nor other tenants.",
                "percentunit",
                "No rail has congestion counters, or sampler.signals is none",
            ),
            [Query(f"sum by (sign) ({limited})\n/ ignoring (sign) group_left () sum ({limited})", "{{sign}}")],
        ),
        lines(
            PanelHead(
                "How much does sending wait?",
                "Ticks of the wait counter per second: time in which a port had data to send but no credits, "
                "because the fabric is full. The unit depends on the device, so compare only ports of the same kind.",
                "none",
                NOT_COUNTED,
            ),
            [Query(by_port("max", scope.rate("ibpulse_port_transmit_wait_total")), PORT_NAME)],
        ),
        lines(
            PanelHead(
                "How long was sending stalled?",
                "Share of the time in which a port had data to send and could not. Requires slow.xmit-wait-tick, "
                "the device's unit of the wait counter.",
                "percentunit",
                "slow.xmit-wait-tick is not set, or no InfiniBand port is ACTIVE",
            ),
            [Query(by_port("max", scope.pick("ibpulse_port_transmit_stalled_ratio")), PORT_NAME)],
        ),
        _pcie(scope),
        _counters(
            "Is there congestion?",
            "RoCE: packets that a switch marked, and notifications sent and obeyed, per second, all chosen devices "
            "together. Obeyed notifications mean that this node was slowed down.",
            CONGESTION,
            scope,
        ),
        _counters(
            "Are packets lost or sent again?",
            "Packets lost, out of order or sent again, per second, all chosen devices together. Out of order is normal "
            "with adaptive routing; timeouts and retransmissions are not.",
            LOSS,
            scope,
        ),
        _counters(
            "Do the links have errors?",
            "Errors per second, all chosen devices together. Persistent symbol errors mean a bad cable or "
            "transceiver, or dirt.",
            ERRORS,
            scope,
        ),
        _full(scope),
    ]


def jobs_of_node(scope: Scope) -> model.Panel:
    """The training jobs that own ports of the node."""
    names = {
        "Step": ("ibpulse_job_step_period_seconds", "s", 90),
        "Duty cycle": ("ibpulse_job_duty_cycle_ratio", "percentunit", 100),
        "Bandwidth while active": ("ibpulse_job_active_bandwidth_bytes_per_second", "Bps", 170),
        "Fairness": ("ibpulse_job_rail_fairness_ratio", "none", 90),
    }
    per_job = ", ".join(("cluster", "job", "job_id"))
    owned = f"count by ({per_job}) (max by ({per_job}, device, port) ({scope.pick('ibpulse_port_job_info')}))"
    return table(
        PanelHead(
            "Which training jobs run here?",
            "Jobs that own ports of the node, and the traffic of their rails here over the last minute. Statistics "
            "exist for at most eight jobs, and only for those that share no port. Click a job to open its board.",
            "none",
            "No job is known on this node: see docs/jobs.md",
            width=12,
            height=6,
        ),
        [
            Column("Ports", owned, "none", width=70),
            *(
                # a table shows "NaN" where there is nothing to tell
                Column(heading, f"max by ({per_job}) ({scope.pick(name)} >= 0)", unit, width=width)
                for heading, (name, unit, width) in names.items()
            ),
        ],
        {"job_id": "Training job"},
        sort=("Ports",),
        link=Link("Open the job", links.row_link(layout.JOB, "job_id")),
    )


def _full(scope: Scope) -> model.Panel:
    return states(
        PanelHead(
            "Which counters are at their maximum?",
            "Counters that have reached their maximum: further errors are not counted until the port is "
            "cleared. No rows is the good case.",
            "none",
            "No counter is at its maximum",
            width=12,
        ),
        [
            Query(
                f"max by (device, port, counter) ({scope.pick('ibpulse_port_counter_saturated')})",
                f"{PORT_NAME} {{{{counter}}}}",
            )
        ],
        colors.words(v1=("at its maximum", colors.VERMILION)),
    )


def _pcie(scope: Scope) -> model.Panel:
    now, most = (scope.pick(f"ibpulse_device_pcie_{name}bytes_per_second") for name in ("", "max_"))
    return lines(
        PanelHead(
            "Is a PCIe link trained down?",
            "Current rate of the narrowest PCIe link on the path to each device ÷ the rate that both its ends support. "
            "Below 1, a link trained down and may be slower than the port.",
            "percentunit",
            "The kernel does not report the PCIe links of these devices",
        ),
        [Query(f"max by (device) ({now} / {most})", "{{device}}")],
        maximum=1,
        thresholds=colors.steps((0.99, colors.SKY), base=colors.VERMILION),
    )


def _counters(title: str, text: str, counters: Mapping[str, str], scope: Scope) -> model.Panel:
    queries = [Query(f"sum({scope.rate(f'ibpulse_{stem}_total')})", words) for stem, words in counters.items()]
    return lines(PanelHead(title, text, "none", NOT_COUNTED, width=12), queries)
