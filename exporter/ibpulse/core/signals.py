"""The counters that are signs of what limits the traffic of a port, and what a rise of each is a sign of.

Standard library only, because the sampler process imports it. The counters of drivers are in
`agent.sysfs.error_counters`, under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Sign = Literal["waiting", "marked", "lost", "receiver", "link"]
SIGNS: tuple[Sign, ...] = ("waiting", "marked", "lost", "receiver", "link")
MAX_SIGNALS = 12
"""Signals of a port."""
MAX_FIRMWARE_READS = 2
"""Those of `counters/` among them, each of which is a command of the device's firmware."""


class Meaning(NamedTuple):
    """What a rise of a counter is a sign of.

    It is a sign for what the port transmits, or, if `of_peers`, for what others transmit to it. `unit` is what it
    counts, in the plural.
    """

    sign: Sign
    unit: str
    of_peers: bool = False


# The most telling first, because a port has at most MAX_SIGNALS. Packets out of order are not among them: adaptive
# routing reorders packets without any loss.
MEANINGS: Mapping[str, Meaning] = {
    "port_transmit_wait": Meaning("waiting", "ticks"),
    "rp_cnp_packets_handled": Meaning("marked", "notifications"),
    "packet_sequence_errors": Meaning("lost", "packets"),
    "local_ack_timeout_errors": Meaning("lost", "timeouts"),
    "rnr_nak_retry_packets_received": Meaning("receiver", "refusals"),
    "roce_adp_retransmits": Meaning("lost", "retransmissions"),
    "hw_retrans_segs": Meaning("lost", "packets"),
    "hw_rc_resend": Meaning("lost", "packets"),
    "hw_tx_rdma_retx_pkts": Meaning("lost", "packets"),
    "hw_retrans_pkts": Meaning("lost", "packets"),
    "hw_retrans_timeout_events": Meaning("lost", "timeouts"),
    "hw_unresponsive_remote_events": Meaning("lost", "events"),
    "hw_impaired_remote_conn_events": Meaning("lost", "events"),
    "hw_completer_retry_err": Meaning("lost", "retries"),
    "symbol_error": Meaning("link", "errors"),
    "rx_icrc_encapsulated_errors": Meaning("link", "packets"),
    "port_discards_transmitted": Meaning("lost", "packets"),
    "np_ecn_marked_roce_packets_received": Meaning("marked", "packets", of_peers=True),
    "out_of_buffer_drops": Meaning("receiver", "packets", of_peers=True),
    "hw_send_rnr_err": Meaning("receiver", "refusals", of_peers=True),
    "hw_rx_drops": Meaning("receiver", "packets", of_peers=True),
    "duplicate_requests_packets": Meaning("lost", "packets", of_peers=True),
    "np_cnp_packets_sent": Meaning("marked", "notifications", of_peers=True),
    "link_error_recovery": Meaning("link", "retrainings"),
    "port_errors_received": Meaning("link", "packets"),
}


class Signal(NamedTuple):
    """A counter of a port by its name in `MEANINGS`, and how it counts.

    It has `bits`; at the largest number it `stops`, or goes on with 0. A counter of 64 bits does neither.
    """

    name: str
    bits: int
    stops: bool = False

    @property
    def meaning(self) -> Meaning:
        """What it is a sign of."""
        return MEANINGS[self.name]

    @property
    def full(self) -> int | None:
        """The number at which it has stopped; None if it never stops."""
        return (1 << self.bits) - 1 if self.stops else None


class SignalSource(NamedTuple):
    """The signals of a port and the files that have them, those of `hw_counters` first.

    With `netlink`, one message has the first `asked` instead. Otherwise `refresh` is the file to read before them, for
    the sake of the kernel's cache, or empty.
    """

    signals: tuple[Signal, ...]
    files: tuple[str, ...]
    asked: int
    netlink: bool = False
    refresh: str = ""
