"""The metrics of ports: identity, totals, windows, traffic, and error and congestion counters.

Names of counters are those of node_exporter with `ibpulse_` in place of `node_infiniband_`. A counter that
node_exporter does not export is named after its file: `ibpulse_hw_` for files of `hw_counters`, `ibpulse_pma_` for
files of `counters`. No other metric uses these two prefixes, so file names chosen by a driver never collide with
another family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter

from ibpulse.agent.aggregator.snapshot import UTILIZATION_BUCKETS, PortCounters, PortSnapshot, Snapshot
from ibpulse.agent.sysfs.error_counters import counter_name
from ibpulse.core.answers.summary import DirectionStatistics
from ibpulse.core.events.watch import DISAPPEARED, KnownPort
from ibpulse.core.metrics.row import Item, Labels, Metric, Subject
from ibpulse.core.model import DIRECTIONS, PROBLEMS, PortId

PORT_LABELS = ("device", "port")
IDENTITY_LABELS = (
    *("link_layer", "rate", "guid", "board", "hca_type", "firmware", "driver", "pci_address", "numa_node", "netdev"),
    *("kind", "gpu", "gpu_distance"),
)
_identity = attrgetter(*IDENTITY_LABELS)


@lru_cache(maxsize=1024)
def port_values(port: PortId) -> tuple[str, str]:
    """The values of the labels of a port."""
    return port.device, str(port.port)


def _infos(snapshot: Snapshot) -> list[tuple[Labels, PortSnapshot]]:
    return [
        ((*port_values(port.port.id), *_identity(port.port.identity), *_use(port)), port) for port in snapshot.ports
    ]


def _use(port: PortSnapshot) -> tuple[str, str, str]:
    found = port.port
    return "true" if found.rail else "false", found.role, found.source.name if found.source else ""


def _of_ports(what: Callable[[PortSnapshot], Item | None]) -> Subject[Snapshot, Item]:
    """What the ports have, without those that have None."""

    def of(snapshot: Snapshot) -> list[tuple[Labels, Item]]:
        found = [(port, what(port)) for port in snapshot.ports]
        return [(port_values(port.port.id), value) for port, value in found if value is not None]

    return Subject(PORT_LABELS, of)


def _existing(snapshot: Snapshot) -> list[tuple[Labels, KnownPort]]:
    return [(port_values(known.port.id), known) for known in snapshot.known_ports if known.state is not None]


def _problems(snapshot: Snapshot) -> list[tuple[Labels, KnownPort]]:
    return [
        ((*port_values(known.port.id), problem), known)
        for known in snapshot.known_ports
        if (problem := known.state.problem if known.state else DISAPPEARED)
    ]


INFO = Subject((*PORT_LABELS, *IDENTITY_LABELS, "rail", "role", "source"), _infos)
PORT = _of_ports(lambda port: port)
EXISTING = Subject(PORT_LABELS, _existing)
RAIL_PORT = _of_ports(lambda port: port.port if port.port.rail else None)
PROBLEM = Subject((*PORT_LABELS, "problem"), _problems)
# a port with a byte source and a slot in the ring
SAMPLED = _of_ports(lambda port: port if port.directions else None)

_PORT_ROWS = (
    INFO.info(
        "ibpulse_port_info",
        "Identity of the port as reported by the kernel, kind of function, nearest GPUs and their distance, whether "
        "the port is a rail (its role is compute), its role, and the source of its byte counters. Always 1.",
    ),
    PORT.gauge("ibpulse_port_up", "1 while the port is ACTIVE, otherwise 0.", lambda port: int(port.port.active)),
    PORT.gauge(
        "ibpulse_port_rate_bytes_per_second",
        "Data rate of one direction after line coding. Absent while the port is not ACTIVE, because the kernel then "
        "shows a placeholder.",
        lambda port: port.port.rate_bytes_per_second,
    ),
    RAIL_PORT.gauge(
        "ibpulse_port_trained_down",
        "1 while the rail is ACTIVE at a lower rate than other rails of its make, otherwise 0.",
        lambda port: int(port.trained_down),
    ),
    SAMPLED.counter(
        "ibpulse_port_observed_seconds_total",
        "Time covered by good samples (both directions read at both ends, no reset) while the port was ACTIVE.",
        lambda port: port.observed_seconds,
    ),
    SAMPLED.counter(
        "ibpulse_port_resets_total",
        "Samples at which a byte counter was lower than before (a counter reset, never counted as traffic), and times "
        "at which another device took the name: its totals begin at 0.",
        lambda port: port.resets,
    ),
    SAMPLED.counter(
        "ibpulse_port_jumps_total",
        "Samples at which a byte counter had increased by more than the line carries in the time since the sample "
        "before and a second, or four sampling intervals, more: a corrupt counter, never counted as traffic.",
        lambda port: port.jumps,
    ),
    SAMPLED.gauge(
        "ibpulse_port_sampling_interval_seconds",
        "Time between two samples of the port. Longer than the sampler's interval for slow devices, for counters that "
        "the kernel caches, and for many devices that are asked by netlink.",
        lambda port: port.sampling_interval_seconds,
    ),
    SAMPLED.gauge(
        "ibpulse_port_effective_resolution_seconds",
        "Lower quartile of the time between changes of the port's counters under traffic, over the last minute. Absent "
        "until enough changes were seen. A value above the sampling interval means that the device refreshes its "
        "counters slowly, or that the traffic consists of regular bursts of a single sample.",
        lambda port: port.effective_resolution_seconds,
    ),
    SAMPLED.gauge(
        "ibpulse_port_left_alone",
        "1 while counter files of the port that failed repeatedly are no longer sampled, only retried from time to "
        "time.",
        lambda port: int(port.left_alone),
    ),
    SAMPLED.counter(
        "ibpulse_sampler_read_errors_total",
        "Reads of the port's byte counters that failed.",
        lambda port: port.read_errors,
    ),
    SAMPLED.counter(
        "ibpulse_sampler_uncertain_reads_total",
        "Samples discarded because their time is uncertain: reading the port took over a tenth of the sampling "
        "interval, or came less than half an interval after a delayed sample.",
        lambda port: port.uncertain_reads,
    ),
    SAMPLED.counter(
        "ibpulse_port_implausible_samples_total",
        "Samples above the line rate, because the counter or its read was late. Each is merged with the fewest samples "
        "before it, at most four, whose mean is possible.",
        lambda port: port.implausible_samples,
    ),
    EXISTING.counter(
        "ibpulse_port_down_seconds_total",
        "Time since this process started during which the port's link was not ACTIVE, read every second.",
        lambda known: known.down_seconds,
    ),
    EXISTING.counter(
        "ibpulse_port_state_changes_total",
        "Changes of the port's link to ACTIVE or from it. One that came and went between two readings counts as two if "
        "the kernel's link_downed counter shows it.",
        lambda known: known.state_changes,
    ),
    PROBLEM.gauge(
        "ibpulse_port_problem",
        f"1 while the port has no samples for this reason: {', '.join(PROBLEMS)}. A port that disappeared is listed "
        "until the history has passed it.",
        lambda known: 1,
    ),
)


def _direction_rows(way: int) -> tuple[Metric, ...]:
    """The rows of one direction of a port: totals, utilisation sums over good samples, rolling windows."""
    word = DIRECTIONS[way]
    name = f"ibpulse_port_{word}"
    direction = _of_ports(lambda port: port.directions[way] if port.directions else None)
    totals = (
        direction.counter(
            f"{name}_bytes_total",
            f"Bytes in the {word} direction since this process started; continues across missing data and counter "
            "resets.",
            lambda side: side.bytes_total,
        ),
        direction.counter(
            f"{name}_active_seconds_total",
            f"Time covered by good samples whose {word} rate was above the threshold. Its rate ÷ the rate of observed "
            "seconds is the duty cycle.",
            lambda side: side.active_seconds,
        ),
    )
    return (*totals, *_utilization_rows(way), *_window_rows(way))


def _utilization_rows(way: int) -> tuple[Metric, ...]:
    word = DIRECTIONS[way]
    name = f"ibpulse_port_{word}"
    # ports whose data rate is known
    rated = _of_ports(lambda port: port.directions[way].moments if port.directions else None)
    return (
        rated.counter(
            f"{name}_utilization_seconds_total",
            f"Sum of {word} utilisation x time over good samples. Its rate ÷ the rate of observed seconds is the mean "
            "utilisation.",
            lambda sums: sums.utilization_seconds,
        ),
        rated.counter(
            f"{name}_utilization_squared_seconds_total",
            f"Sum of squared {word} utilisation x time over good samples, for the variance over any time range.",
            lambda sums: sums.utilization_squared_seconds,
        ),
        rated.counter(
            f"{name}_active_utilization_seconds_total",
            f"Sum of {word} utilisation x time over active samples.",
            lambda sums: sums.active_utilization_seconds,
        ),
        rated.counter(
            f"{name}_active_utilization_squared_seconds_total",
            f"Sum of squared {word} utilisation x time over active samples, for their coefficient of variation over "
            "any time range.",
            lambda sums: sums.active_utilization_squared_seconds,
        ),
        rated.histogram(
            f"{name}_utilization_ratio",
            f"Utilisation of the {word} direction at every tick covered by a good sample. Sampled by ibpulse's own "
            "timer, independent of scrapes.",
            lambda sums: sums.histogram,
            UTILIZATION_BUCKETS,
        ),
    )


def _window_rows(way: int) -> tuple[Metric, ...]:
    word = DIRECTIONS[way]
    name = f"ibpulse_port_{word}"

    def windows(snapshot: Snapshot) -> list[tuple[Labels, DirectionStatistics]]:
        return [
            ((*port_values(port.port.id), window), values)
            for port in snapshot.ports
            if port.directions
            for window, values in zip(snapshot.windows, port.directions[way].windows, strict=True)
        ]

    window = Subject((*PORT_LABELS, "window"), windows)
    return (
        window.gauge(
            f"{name}_peak_bytes_per_second",
            f"Highest {word} rate of a single sample in the window. Scrapes do not reset it.",
            lambda values: values.peak_bytes_per_second,
        ),
        window.gauge(
            f"{name}_duty_cycle_ratio",
            f"Fraction of the window's observed time during which the {word} rate was above the threshold.",
            lambda values: values.duty_cycle_ratio,
        ),
        window.gauge(
            f"{name}_burstiness_cv",
            f"Coefficient of variation of the active {word} samples in the window, at the port's sampling interval.",
            lambda values: values.burstiness_cv,
        ),
    )


ROWS = (*_PORT_ROWS, *_direction_rows(0), *_direction_rows(1))


# the others appear with their first second, to save series
USUAL_SIGNS = ("source", "usual-peak", "unknown")


def _limits(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    there = {port.port.id for port in snapshot.ports}
    for port in filter(lambda port: port.port in there, snapshot.limits):
        for sign, seconds in port.seconds.items():
            if seconds or sign in USUAL_SIGNS:
                yield (*port_values(port.port), sign), seconds


RAIL = _of_ports(lambda port: port.balance)
LIMIT = Subject((*PORT_LABELS, "sign"), _limits)


def _saturation_rows(way: int) -> tuple[Metric, ...]:
    word = DIRECTIONS[way]

    def state(port: PortSnapshot) -> int | None:
        saturated = port.saturated[way]
        return None if saturated is None else int(saturated)

    return (
        SAMPLED.gauge(
            f"ibpulse_port_{word}_saturated",
            f"1 while the median {word} utilisation of the last saturation window is at or above the saturation level.",
            state,
        ),
        SAMPLED.counter(
            f"ibpulse_port_{word}_saturated_seconds_total",
            f"Observed time during which the {word} direction was saturated.",
            lambda port: port.saturated_seconds[way],
        ),
    )


TRAFFIC_ROWS = (
    SAMPLED.counter(
        "ibpulse_port_bursts_total",
        "Bursts of the port's bandwidth (transmit + receive) that began after an idle gap. Those that begin in "
        "three or more missing samples are not seen: divide by ibpulse_port_observed_seconds_total to get the least "
        "number per second.",
        lambda port: port.bursts,
    ),
    SAMPLED.counter(
        "ibpulse_port_burst_seconds_total",
        "Time the port spent in bursts, including bursts of unknown length. Divide by "
        "ibpulse_port_observed_seconds_total to get the share of the time.",
        lambda port: port.burst_seconds,
    ),
    RAIL.gauge(
        "ibpulse_port_rail_share_ratio",
        "The rail's share of the bytes of all rails of its job, or of the rails without a job, over the last seconds "
        "with traffic; 1/n if all n of them carry the same.",
        lambda rail: rail.rail_share_ratio,
    ),
    RAIL.gauge(
        "ibpulse_port_rail_idle",
        "1 while the rail carries less than 5 % of the median of the other rails of its job, or of those without a "
        "job, and they are active, over 3 s.",
        lambda rail: int(bool(rail.rail_idle)),
    ),
    RAIL.gauge(
        "ibpulse_port_rail_slow",
        "1 while the rail carries less than 75 % of the median of the other rails of its job, or of those without a "
        "job, in its mean or its mean while active, over 10 s, and is not idle.",
        lambda rail: int(bool(rail.rail_slow)),
    ),
    *_saturation_rows(0),
    *_saturation_rows(1),
    LIMIT.counter(
        "ibpulse_port_transmit_limit_seconds_total",
        "Time in which the rail transmitted, by the sign of what limited it: source, path, receiver, loss, link, "
        "usual-peak (nothing held it back) or unknown. A sign is no cause. Absent for a rail without congestion "
        "counters; path, receiver, loss and link until they occur.",
        lambda seconds: seconds,
    ),
)


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
    "hw_send_rnr_err": "Soft-RoCE: requests refused because no receive buffer was posted.",
    "hw_completer_retry_err": "Soft-RoCE: times a requester sent again what was not acknowledged.",
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
    # the names of drivers say nothing certain of the unit
    return Metric(name, "counter", text, TOTALS, lambda totals: totals.get(name))


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
