"""Ports of a node: link state, identity, and the counters that say why the wire looks as it does."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.models import dashboard as model

from tools.grafana import panels
from tools.grafana.panels import VERMILION, PanelHead, lines, states
from tools.grafana.queries import Query, Scope
from tools.grafana.tables import Column, table

PORT_NAME = "{{device}}:{{port}}"
NOT_COUNTED = "No such counter on these ports: it depends on the driver, and on slow.counters"

CONGESTION = {
    "np_ecn_marked_roce_packets_received": "marked packets received",
    "np_cnp_packets_sent": "notifications sent",
    "rp_cnp_packets_handled": "notifications obeyed",
    "hw_impaired_remote_conn_events": "connections slowed down (EFA)",
}
LOSS = {
    "out_of_sequence_packets_received": "out of order",
    "packet_sequence_errors": "sequence NAKs",
    "duplicate_requests_packets": "duplicate requests",
    "rnr_nak_retry_packets_received": "receiver not ready",
    "local_ack_timeout_errors": "acknowledgement timeouts",
    "out_of_buffer_drops": "out of buffers",
    "roce_adp_retransmits": "adaptive retransmissions",
    "hw_retrans_segs": "retransmissions (irdma)",
    "hw_rc_resend": "retransmissions (hfi1)",
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
    "rx_icrc_encapsulated_errors": "bad ICRC (RoCE)",
}


def port_panels(scope: Scope) -> list[model.Panel]:
    """Link states, line rates, and what the ports are."""
    labels = {
        "device": "Device",
        "port": "Port",
        "link_layer": "Link layer",
        "rate": "Rate",
        "rail": "Rail",
        "source": "Read from",
        "firmware": "Firmware",
        "driver": "Driver",
        "board": "Board",
        "pci_address": "PCI address",
        "numa_node": "NUMA node",
        "netdev": "Interface",
        "guid": "GUID",
    }
    return [
        states(
            PanelHead(
                "Link states",
                "Whether each port is ACTIVE. A device that vanished from the kernel's list has no row from then on.",
                "none",
                "No port of these devices reports",
                width=12,
            ),
            [Query(scope.pick("ibpulse_port_up"), PORT_NAME)],
            panels.UP,
        ),
        lines(
            PanelHead(
                "Line rates",
                "Data rate of one direction of each port. Absent while a port is not ACTIVE, because the kernel then "
                "shows a dummy; a step down is a link that trained to a lower speed or width.",
                "Bps",
                "No port of these devices is ACTIVE",
                width=12,
            ),
            [Query(scope.pick("ibpulse_port_rate_bytes_per_second"), PORT_NAME)],
        ),
        table(
            PanelHead(
                "What the ports are",
                "Identity as the kernel tells it, whether the port counts as a rail, and the files that its bytes are "
                "read from.",
                "none",
                "No port of these devices reports",
                width=24,
            ),
            [Column("", f"max by ({', '.join(labels)}) ({scope.pick('ibpulse_port_info')})", "none")],
            labels,
            sort=("Device",),
            ascending=True,
        ),
    ]


def wire_panels(scope: Scope) -> list[model.Panel]:
    """Waiting, congestion, loss, errors of the link, PCIe."""
    return [
        lines(
            PanelHead(
                "Waiting to send",
                "Ticks per second in which a port had data to send and sent none: the fabric in front of it is full. "
                "The length of a tick depends on the device, so compare ports of one kind only.",
                "cps",
                NOT_COUNTED,
            ),
            [Query(scope.rate("ibpulse_port_transmit_wait_total"), PORT_NAME)],
        ),
        lines(
            PanelHead(
                "Time that sending stood still",
                "Share of the time in which a port had data to send and could not. Only where slow.xmit-wait-tick says "
                "how long a tick of the device is.",
                "percentunit",
                "slow.xmit-wait-tick is not set, or no InfiniBand port is ACTIVE",
            ),
            [Query(scope.pick("ibpulse_port_transmit_stalled_ratio"), PORT_NAME)],
            maximum=1,
        ),
        _pcie(scope),
        _counters(
            "Congestion notifications",
            "RoCE: packets that a switch marked, and notifications sent and obeyed, per second, of the chosen devices "
            "together. Notifications obeyed mean that this node was slowed down.",
            CONGESTION,
            scope,
        ),
        _counters(
            "Loss and retransmission",
            "Packets lost, overtaken or sent again, per second, of the chosen devices together. Out of order is normal "
            "with adaptive routing; timeouts and retransmissions are not.",
            LOSS,
            scope,
        ),
        _counters(
            "Errors of the link",
            "Errors per second of the chosen devices together. Symbol errors that keep coming are a cable, a "
            "transceiver or dirt.",
            ERRORS,
            scope,
        ),
        states(
            PanelHead(
                "Counters that stand still at their end",
                "Counters at the largest number that they can hold: errors go on uncounted until somebody clears the "
                "port. No row is the good case.",
                "none",
                "No counter stands at its end",
                width=24,
                height=5,
            ),
            [Query(scope.pick("ibpulse_port_counter_saturated"), f"{PORT_NAME} {{{{counter}}}}")],
            panels.words(v1=("at its end", VERMILION)),
        ),
    ]


def _pcie(scope: Scope) -> model.Panel:
    now, most = (scope.pick(f"ibpulse_device_pcie_{name}bytes_per_second") for name in ("", "max_"))
    return lines(
        PanelHead(
            "PCIe of what it could be",
            "What the narrowest PCIe link on the way to each device carries now ÷ what it would carry if both its ends "
            "ran as they can. Below 1 a link trained down, and may be narrower than the port.",
            "percentunit",
            "The kernel does not tell the PCIe links of these devices",
        ),
        [Query(f"{now} / {most}", "{{device}}")],
        maximum=1,
        thresholds=panels.steps((0.99, panels.SKY), base=VERMILION),
    )


def _counters(title: str, text: str, counters: Mapping[str, str], scope: Scope) -> model.Panel:
    queries = [Query(f"sum({scope.rate(f'ibpulse_{stem}_total')})", words) for stem, words in counters.items()]
    return lines(PanelHead(title, text, "cps", NOT_COUNTED), queries)
