"""The metrics of error and congestion counters.

Names are those of node_exporter with `ibpulse_` in place of `node_infiniband_`. A counter that node_exporter does not
export is named after its file: `ibpulse_hw_` for files of `hw_counters`, `ibpulse_pma_` for files of `counters`. No
other metric uses these two prefixes, so file names chosen by a driver never collide with another family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ibpulse.agent.aggregator.snapshot import PortCounters, Snapshot
from ibpulse.agent.metrics.ports import PORT_LABELS, port_values
from ibpulse.agent.sysfs.error_counters import counter_name
from ibpulse.core.metrics.row import Labels, Metric, Subject

Totals = Mapping[str, int]

DIAGNOSTIC_TEXTS = {
    "port_transmit_wait": "Device clock ticks during which the port had data to send but sent none. The length of a "
    "tick depends on the device.",
    "port_discards_transmitted": "Outbound packets dropped because the port was down or congested.",
    "port_errors_received": "Packets received with an error.",
    "symbol_error": "Minor errors on a lane of the link.",
    "link_error_recovery": "Successful link error recoveries.",
    "link_downed": "Times the link went down.",
    "out_of_sequence_packets_received": "Responder: packets received out of order. Normal with adaptive routing.",
    "packet_sequence_errors": "Requester: NAKs received for a sequence error: a packet was lost or reordered.",
    "duplicate_requests_packets": "Responder: duplicate requests received: the peer retransmitted.",
    "rnr_nak_retry_packets_received": "Requester: receiver-not-ready NAKs received: the peer posted no buffer.",
    "local_ack_timeout_errors": "Requester: acknowledgement timeouts: packet loss or a dead path.",
    "out_of_buffer_drops": "Responder: packets dropped because no receive work request was posted.",
    "np_cnp_packets_sent": "RoCE: congestion notifications sent in response to marked packets.",
    "np_ecn_marked_roce_packets_received": "RoCE: packets received with a congestion mark set by a switch.",
    "rp_cnp_packets_handled": "RoCE: congestion notifications received and handled by slowing this port down.",
    "rx_icrc_encapsulated_errors": "RoCE: packets received with a bad ICRC: corrupted in transit.",
    "roce_adp_retransmits": "RoCE: adaptive retransmissions.",
    "roce_slow_restart_used": "RoCE: times slow restart was used.",
    "req_transport_retries_exceeded": "Requester: queue pairs that failed after too many transport retries.",
    "port_carrier_changes": "RoCE: times the carrier of the port's network device was lost or came back.",
    "hw_retrans_segs": "irdma: segments or packets retransmitted.",
    "hw_rc_resend": "hfi1: packets of reliable connections retransmitted.",
    "hw_rx_drops": "EFA: packets dropped by the receiving device.",
    "hw_retrans_pkts": "EFA: packets retransmitted.",
    "hw_retrans_timeout_events": "EFA: timeouts that led to a change of path.",
    "hw_unresponsive_remote_events": "EFA: times a remote device did not respond.",
    "hw_impaired_remote_conn_events": "EFA: times a connection was slowed down because of an impaired path.",
    "hw_device_no_completion_cmds": "EFA: administrative commands that the device never completed: its firmware hangs.",
    "hw_device_cmds_err": "EFA: administrative commands that failed.",
    "hw_device_keep_alive_rcvd": "EFA: keep-alive messages received from the device.",
    "hw_device_reg_mr_err": "EFA: memory registrations that failed.",
    "hw_device_create_qp_err": "EFA: queue pairs that could not be created.",
    "hw_device_create_cq_err": "EFA: completion queues that could not be created.",
    "hw_device_create_ah_err": "EFA: address handles that could not be created.",
    "hw_tx_rdma_retx_pkts": "ionic: packets retransmitted.",
    "hw_tx_rdma_retx_bytes": "ionic: bytes retransmitted.",
}

# exported only with slow.counters=all
OTHER_TEXTS = {
    "port_data_transmitted_bytes": "Bytes sent, according to the port's own counter.",
    "port_data_received_bytes": "Bytes received, according to the port's own counter.",
    "port_packets_transmitted": "Packets sent.",
    "port_packets_received": "Packets received.",
    "unicast_packets_transmitted": "Unicast packets sent.",
    "unicast_packets_received": "Unicast packets received.",
    "multicast_packets_transmitted": "Multicast packets sent.",
    "multicast_packets_received": "Multicast packets received.",
    "port_receive_remote_physical_errors": "Packets received that a switch had already marked as bad.",
    "port_receive_switch_relay_errors": "Packets that a switch could not forward.",
    "port_constraint_errors_transmitted": "Packets not sent because of a port constraint.",
    "port_constraint_errors_received": "Packets received and dropped because of a port constraint.",
    "port_discards_received": "Inbound packets dropped because the port was down or congested.",
    "vl15_dropped": "Management packets dropped for lack of resources.",
    "local_link_integrity_errors": "Times the errors on the link exceeded its threshold.",
    "excessive_buffer_overrun_errors": "Times the receive buffer overran repeatedly.",
    "rx_write_requests": "Responder: write requests received.",
    "rx_read_requests": "Responder: read requests received.",
    "rx_atomic_requests": "Responder: atomic requests received.",
    "rx_dct_connect_requests": "Responder: connection requests received for dynamically connected transport.",
    "implied_nak_seq_errors": "Requester: acknowledgements received for a later packet than expected.",
    "req_cqes_errors": "Requester: completions with an error, including flushed ones.",
    "req_cqes_flush_errors": "Requester: flushed completions; these occur whenever a queue pair is closed.",
    "req_remote_access_errors": "Requester: remote access errors.",
    "req_remote_invalid_request_errors": "Requester: requests rejected as invalid by the remote side.",
    "req_rnr_retries_exceeded": "Requester: queue pairs that failed after too many receiver-not-ready retries.",
    "resp_cqes_errors": "Responder: completions with an error, including flushed ones.",
    "resp_cqes_flush_errors": "Responder: flushed completions; these occur whenever a queue pair is closed.",
    "resp_local_length_errors": "Responder: messages longer than the posted buffer.",
    "resp_remote_access_errors": "Responder: remote access errors.",
    "rp_cnp_ignored_packets_received": "RoCE: congestion notifications received and ignored; 0 if DCQCN is enabled.",
    "roce_adp_retransmits_timeout": "RoCE: timeouts of adaptive retransmission.",
    "roce_slow_restart_cnps": "RoCE: congestion notifications generated by slow restart.",
    "roce_slow_restart": "RoCE: times a connection entered slow restart.",
}


def _read(snapshot: Snapshot) -> list[tuple[Labels, PortCounters]]:
    return [(port_values(port.port), port) for port in snapshot.counters]


def _totals(snapshot: Snapshot) -> list[tuple[Labels, Totals]]:
    return [
        (port_values(port.port), {counter.name: counter.total for counter in port.totals}) for port in snapshot.counters
    ]


def _full(snapshot: Snapshot) -> Iterator[tuple[Labels, None]]:
    for port in snapshot.counters:
        for counter in port.totals:
            if counter.saturated:
                yield (*port_values(port.port), counter.file), None


READ = Subject(PORT_LABELS, _read)
TOTALS = Subject(PORT_LABELS, _totals)
FULL = Subject((*PORT_LABELS, "counter"), _full)


def _counter(name: str, text: str) -> Metric:
    return TOTALS.counter(name, text, lambda totals: totals.get(name))


DIAGNOSTIC_COUNTERS = tuple(_counter(counter_name(stem), text) for stem, text in DIAGNOSTIC_TEXTS.items())
OTHER_COUNTERS = tuple(_counter(counter_name(stem), text) for stem, text in OTHER_TEXTS.items())
STATE_ROWS = (
    FULL.gauge(
        "ibpulse_port_counter_saturated",
        "1 while a counter is stuck at the largest value its width can hold because its driver does not let it wrap: "
        "further errors are not counted until the port's counters are cleared. Absent otherwise.",
        lambda counter: 1,
    ),
    READ.gauge(
        "ibpulse_port_transmit_stalled_ratio",
        "Fraction of the time between the last two slow reads during which the port had data to send but could not. "
        "Only with slow.xmit-wait-tick, and only on an ACTIVE InfiniBand port whose counter is neither saturated nor "
        "was reset.",
        lambda port: port.stalled_ratio,
        "ratio",
    ),
)

_DIAGNOSTIC = {metric.name for metric in DIAGNOSTIC_COUNTERS}
_rows = {metric.name: metric for metric in (*DIAGNOSTIC_COUNTERS, *OTHER_COUNTERS)}


def find_counter(name: str, file: str) -> Metric:
    """The row of the counter exported under this name, created on first use for counters outside the tables."""
    known = _rows.get(name)
    if known is None:
        shown = re.sub(r"[^A-Za-z0-9_ ,.:()/+-]", "?", file)
        known = _rows.setdefault(name, _counter(name, f"Counter file {shown} of the port."))
    return known


def other_rows(snapshot: Snapshot) -> list[Metric]:
    """The rows of a snapshot's non-diagnostic counters, sorted by name."""
    files: dict[str, str] = {}
    for port in snapshot.counters:
        for counter in port.totals:
            if counter.name not in _DIAGNOSTIC:
                files.setdefault(counter.name, counter.file)
    return [find_counter(name, files[name]) for name in sorted(files)]
