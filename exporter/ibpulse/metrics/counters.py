"""The metrics of error and congestion counters.

Names are those of node_exporter with `ibpulse_` in place of `node_infiniband_`. What node_exporter does not name is
called after its file: `ibpulse_hw_` for a file of `hw_counters`, `ibpulse_pma_` for one of `counters`. No other metric
begins like that, so whatever a driver calls its files, no two families can have one name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ibpulse.aggregator.snapshot import PortCounters, Snapshot
from ibpulse.metrics.ports import PORT_LABELS, port_values
from ibpulse.metrics.row import Labels, Metric, Subject
from ibpulse.sysfs.diagnostics import counter_name

Totals = Mapping[str, int]

DIAGNOSTIC_TEXTS = {
    "port_transmit_wait": "Ticks in which the port had data to send and sent none for the whole tick. The length "
    "of a tick depends on the device.",
    "port_discards_transmitted": "Packets that the port was to send and dropped, because it was down or congested.",
    "port_errors_received": "Packets received with an error.",
    "symbol_error": "Minor errors on a lane of the link.",
    "link_error_recovery": "Times the link recovered from an error by itself.",
    "link_downed": "Times the link went down.",
    "out_of_sequence_packets_received": "Responder: packets received out of order. Normal with adaptive routing.",
    "packet_sequence_errors": "Requester: NAKs for a sequence error received: a packet of ours was lost or overtaken.",
    "duplicate_requests_packets": "Responder: requests received again: the peer retransmitted.",
    "rnr_nak_retry_packets_received": "Requester: receiver-not-ready NAKs received: the peer posted no buffer.",
    "local_ack_timeout_errors": "Requester: times an acknowledgement did not come in time: loss, or a dead path.",
    "out_of_buffer_drops": "Responder: packets dropped because no receive work request was posted.",
    "np_cnp_packets_sent": "RoCE: congestion notifications sent because marked packets came in.",
    "np_ecn_marked_roce_packets_received": "RoCE: packets received that a switch had marked for congestion.",
    "rp_cnp_packets_handled": "RoCE: congestion notifications received and obeyed: this port was slowed down.",
    "rx_icrc_encapsulated_errors": "RoCE: packets received with a bad ICRC: damaged on the way.",
    "roce_adp_retransmits": "RoCE: adaptive retransmissions.",
    "hw_retrans_segs": "irdma: segments or packets sent again.",
    "hw_rc_resend": "hfi1: packets of reliable connections sent again.",
    "hw_rx_drops": "EFA: packets that the receiving device dropped.",
    "hw_retrans_pkts": "EFA: packets sent again.",
    "hw_retrans_timeout_events": "EFA: timeouts after which another path was taken.",
    "hw_unresponsive_remote_events": "EFA: times a remote device did not answer.",
    "hw_impaired_remote_conn_events": "EFA: times a connection was slowed down because its path is impaired.",
}

# those that only slow.counters=all exports
OTHER_TEXTS = {
    "port_data_transmitted_bytes": "Bytes sent, as the port's own counter has them.",
    "port_data_received_bytes": "Bytes received, as the port's own counter has them.",
    "port_packets_transmitted": "Packets sent.",
    "port_packets_received": "Packets received.",
    "unicast_packets_transmitted": "Unicast packets sent.",
    "unicast_packets_received": "Unicast packets received.",
    "multicast_packets_transmitted": "Multicast packets sent.",
    "multicast_packets_received": "Multicast packets received.",
    "port_receive_remote_physical_errors": "Packets received that a switch had marked as bad.",
    "port_receive_switch_relay_errors": "Packets that a switch could not forward.",
    "port_constraint_errors_transmitted": "Packets not sent because of a constraint of the port.",
    "port_constraint_errors_received": "Packets received and dropped because of a constraint of the port.",
    "port_discards_received": "Packets received and dropped, because the port was down or congested.",
    "vl15_dropped": "Management packets dropped for lack of resources.",
    "local_link_integrity_errors": "Times the link had more errors than its threshold allows.",
    "excessive_buffer_overrun_errors": "Times the receive buffer overran again and again.",
    "rx_write_requests": "Responder: write requests received.",
    "rx_read_requests": "Responder: read requests received.",
    "rx_atomic_requests": "Responder: atomic requests received.",
    "rx_dct_connect_requests": "Responder: connection requests for dynamically connected transport received.",
    "implied_nak_seq_errors": "Requester: acknowledgements received for a packet later than the expected one.",
    "req_cqes_errors": "Requester: completions with an error, flushed ones included.",
    "req_cqes_flush_errors": "Requester: completions that were flushed, as happens whenever a queue pair ends.",
    "req_remote_access_errors": "Requester: remote access errors.",
    "req_remote_invalid_request_errors": "Requester: requests that the remote side found invalid.",
    "req_rnr_retries_exceeded": "Requester: queue pairs ended by receiver-not-ready retries.",
    "req_transport_retries_exceeded": "Requester: queue pairs ended by transport retries.",
    "resp_cqes_errors": "Responder: completions with an error, flushed ones included.",
    "resp_cqes_flush_errors": "Responder: completions that were flushed, as happens whenever a queue pair ends.",
    "resp_local_length_errors": "Responder: messages longer than the buffer posted.",
    "resp_remote_access_errors": "Responder: remote access errors.",
    "rp_cnp_ignored_packets_received": "RoCE: congestion notifications received and ignored; 0 where DCQCN is on.",
    "roce_adp_retransmits_timeout": "RoCE: timeouts of adaptive retransmission.",
    "roce_slow_restart_used": "RoCE: times slow restart was used.",
    "roce_slow_restart_cnps": "RoCE: congestion notifications that slow restart made.",
    "roce_slow_restart": "RoCE: times a connection changed to slow restart.",
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
        "1 while a counter stands at the largest number that its width can hold, and its driver lets it stop there: "
        "errors go on uncounted until somebody clears the port. Absent otherwise.",
        lambda counter: 1,
    ),
    READ.gauge(
        "ibpulse_port_transmit_stalled_ratio",
        "Share of the time between the last two slow reads in which the port had data to send and could not. Only with "
        "slow.xmit-wait-tick, on an ACTIVE InfiniBand port whose counter neither stopped nor was reset.",
        lambda port: port.stalled_ratio,
        "ratio",
    ),
)

_DIAGNOSTIC = {metric.name for metric in DIAGNOSTIC_COUNTERS}
_rows = {metric.name: metric for metric in (*DIAGNOSTIC_COUNTERS, *OTHER_COUNTERS)}


def find_counter(name: str, file: str) -> Metric:
    """The row of the counter that is exported by this name; one is made, once, for a name that has none."""
    known = _rows.get(name)
    if known is None:
        shown = re.sub(r"[^A-Za-z0-9_ ,.:()/+-]", "?", file)
        known = _rows.setdefault(name, _counter(name, f"Counter file {shown} of the port."))
    return known


def other_rows(snapshot: Snapshot) -> list[Metric]:
    """The rows of the counters of a snapshot that are not diagnostic, by name."""
    files: dict[str, str] = {}
    for port in snapshot.counters:
        for counter in port.totals:
            if counter.name not in _DIAGNOSTIC:
                files.setdefault(counter.name, counter.file)
    return [find_counter(name, files[name]) for name in sorted(files)]
