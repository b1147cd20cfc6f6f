"""The table of error and congestion counters, the choice and order of the files to read, and their reader.

Widths are from `drivers/infiniband/core/sysfs.c` and from the firmware's replies. The counters of `counters/` stop at
their maximum (IBTA 1.8, 16.1.3.5), except Broadcom's, which wrap. It is not documented whether the 32-bit counters of
mlx5's queues wrap or stop; one that is exactly at its maximum has stopped.

Cost of a read on mlx5: each file of `counters/` takes one firmware command. The files of `hw_counters/` come from a
cache that is valid for `lifespan`, but only a read of `rx_write_requests` restarts that time. If this file is read
first, all others are free; in any other order each file takes 2 to 4 commands. The error counters of `counters/` belong
to the physical port, which all its functions share; those of `hw_counters/` belong to the function.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from ibpulse.agent.sysfs.byte_counters import BROADCOM, COUNTERS, EFA, HW_COUNTERS, SOFT_ROCE
from ibpulse.agent.sysfs.files import ALL_ONES, ReadFault, Text, list_names, parse_count, read_text
from ibpulse.agent.sysfs.speed import ETHERNET, INFINIBAND
from ibpulse.base.units import SECOND_NS, WORD_BYTES
from ibpulse.core.model import CounterReading, PortId, PortReadings
from ibpulse.core.signals import MAX_FIRMWARE_READS, MAX_SIGNALS, MEANINGS, Signal, SignalSource

CounterSet = Literal["diagnostic", "all", "none"]

EVERYWHERE = (INFINIBAND, ETHERNET)
NOWHERE: tuple[str, ...] = ()
# The counters of an EFA device, and the network device of a port. Of both only the files in the table are read.
DEVICE_HW_COUNTERS = "device hw_counters"
NETDEV = "net"
# After a read of this file, reads of the others in its folder are free for a while.
REFRESHING_FILE = "rx_write_requests"
# Not counters: the cache lifetime, and values that can also drop.
LEVELS = ("lifespan", "active_*", "watermark_*", "current_rate")
FOLDER_PREFIXES = {COUNTERS: "pma_", HW_COUNTERS: "hw_"}
# in the order of reading: what belongs to the physical port, which all its functions share, comes last
FOLDERS = (HW_COUNTERS, DEVICE_HW_COUNTERS, COUNTERS, NETDEV)
# drivers that have counters/: their usual name, and the sysfs name where `silent` needs it
PMA_DRIVERS = {"mlx5": "", "mlx4": "", "hfi1": "hfi1", "bnxt_re": "", "rxe": SOFT_ROCE}
# Those whose `port_xmit_wait` is known to count. A counter that is always 0 would pass for a port that never waits.
WAITING_DRIVERS = frozenset({"mlx5_core", "mlx4_core"})
# how a file that fails is tried again
REFUSALS = frozenset({errno.EINVAL, errno.EOPNOTSUPP})
TRIES = 3
FIRST_PAUSE_NS = 60 * SECOND_NS
MAX_PAUSE_NS = 600 * SECOND_NS
SLOW_READ_NS = SECOND_NS
NO_MESSAGE: Mapping[str, int] = {}


def counter_name(stem: str) -> str:
    """The exported name of a counter."""
    return f"ibpulse_{stem}_total"


def stem_of_file(folder: str, file: str) -> str:
    """The stem for a file that is not in the table: its folder's prefix and the file name in snake case.

    `hw_counters/SwLinkUp,32` becomes `hw_sw_link_up_32`. Different files can have the same stem.
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", file)
    words = re.sub(r"[^a-z0-9]+", "_", snake.lower()).strip("_")
    return FOLDER_PREFIXES[folder] + (words.removesuffix("_total") or "unnamed")


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter file.

    `stem` is the exported name without prefix and suffix. `layers` are the link layers on which it is a diagnostic
    counter; EFA, which has no link layer, counts as Ethernet. `drivers` lists the drivers that have it, for the
    documentation. `scale` is the value of one count. `silent` are drivers whose file is always 0.
    """

    folder: str
    file: str
    stem: str
    bits: int
    layers: tuple[str, ...] = NOWHERE
    drivers: str = ""
    scale: int = 1
    silent: frozenset[str] = frozenset()


def _pma(
    file: str, stem: str, bits: int, layers: tuple[str, ...] = NOWHERE, scale: int = 1, silent: tuple[str, ...] = ()
) -> Counter:
    drivers = ", ".join(name for name, driver in PMA_DRIVERS.items() if driver not in silent)
    return Counter(COUNTERS, file, stem, bits, layers, drivers, scale, frozenset(silent))


def _hw(file: str, stem: str, bits: int, layers: tuple[str, ...], drivers: str) -> Counter:
    return Counter(HW_COUNTERS, file, stem, bits, layers, drivers)


def _efa_device(file: str) -> Counter:
    return Counter(DEVICE_HW_COUNTERS, file, f"hw_device_{file}", 64, EVERYWHERE, EFA)


# On Ethernet most error counters stay 0, so only those that can rise are read.
FACTS: tuple[Counter, ...] = (
    _pma("port_xmit_wait", "port_transmit_wait", 32, EVERYWHERE, silent=("hfi1", SOFT_ROCE)),
    _pma("port_xmit_discards", "port_discards_transmitted", 16, EVERYWHERE, silent=(SOFT_ROCE,)),
    _pma("link_downed", "link_downed", 8, EVERYWHERE),
    _pma("link_error_recovery", "link_error_recovery", 8, (INFINIBAND,)),
    _pma("symbol_error", "symbol_error", 16, (INFINIBAND,)),
    _pma("port_rcv_errors", "port_errors_received", 16, (INFINIBAND,)),
    _pma("port_rcv_remote_physical_errors", "port_receive_remote_physical_errors", 16),
    _pma("port_rcv_switch_relay_errors", "port_receive_switch_relay_errors", 16),
    _pma("port_rcv_discards", "port_discards_received", 16),
    _pma("VL15_dropped", "vl15_dropped", 16),
    _pma("port_xmit_constraint_errors", "port_constraint_errors_transmitted", 8),
    _pma("port_rcv_constraint_errors", "port_constraint_errors_received", 8),
    _pma("local_link_integrity_errors", "local_link_integrity_errors", 4),
    _pma("excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors", 4),
    _pma("port_xmit_data", "port_data_transmitted_bytes", 64, scale=WORD_BYTES),
    _pma("port_rcv_data", "port_data_received_bytes", 64, scale=WORD_BYTES),
    _pma("port_xmit_packets", "port_packets_transmitted", 64),
    _pma("port_rcv_packets", "port_packets_received", 64),
    _pma("unicast_xmit_packets", "unicast_packets_transmitted", 64),
    _pma("unicast_rcv_packets", "unicast_packets_received", 64),
    _pma("multicast_xmit_packets", "multicast_packets_transmitted", 64),
    _pma("multicast_rcv_packets", "multicast_packets_received", 64),
    # mlx5
    _hw("out_of_sequence", "out_of_sequence_packets_received", 32, EVERYWHERE, "mlx5"),
    _hw("packet_seq_err", "packet_sequence_errors", 32, EVERYWHERE, "mlx5"),
    _hw("duplicate_request", "duplicate_requests_packets", 32, EVERYWHERE, "mlx5, rxe (64 bits)"),
    _hw("rnr_nak_retry_err", "rnr_nak_retry_packets_received", 32, EVERYWHERE, "mlx5"),
    _hw("local_ack_timeout_err", "local_ack_timeout_errors", 32, EVERYWHERE, "mlx5"),
    _hw("out_of_buffer", "out_of_buffer_drops", 32, EVERYWHERE, "mlx5"),
    _hw("np_cnp_sent", "np_cnp_packets_sent", 64, (ETHERNET,), "mlx5"),
    _hw("np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets_received", 64, (ETHERNET,), "mlx5"),
    _hw("rp_cnp_handled", "rp_cnp_packets_handled", 64, (ETHERNET,), "mlx5"),
    _hw("rx_icrc_encapsulated", "rx_icrc_encapsulated_errors", 64, (ETHERNET,), "mlx5"),
    _hw("roce_adp_retrans", "roce_adp_retransmits", 32, (ETHERNET,), "mlx5"),
    _hw("roce_slow_restart", "roce_slow_restart_used", 32, (ETHERNET,), "mlx5"),
    _hw("rx_write_requests", "rx_write_requests", 32, NOWHERE, "mlx5, mana"),
    _hw("rx_read_requests", "rx_read_requests", 32, NOWHERE, "mlx5, mana"),
    _hw("rx_atomic_requests", "rx_atomic_requests", 32, NOWHERE, "mlx5"),
    _hw("rx_dct_connect", "rx_dct_connect_requests", 32, NOWHERE, "mlx5"),
    _hw("implied_nak_seq_err", "implied_nak_seq_errors", 32, NOWHERE, "mlx5"),
    _hw("req_cqe_error", "req_cqes_errors", 32, NOWHERE, "mlx5"),
    _hw("req_cqe_flush_error", "req_cqes_flush_errors", 32, NOWHERE, "mlx5"),
    _hw("req_remote_access_errors", "req_remote_access_errors", 32, NOWHERE, "mlx5"),
    _hw("req_remote_invalid_request", "req_remote_invalid_request_errors", 32, NOWHERE, "mlx5"),
    _hw("req_rnr_retries_exceeded", "req_rnr_retries_exceeded", 32, NOWHERE, "mlx5"),
    _hw("req_transport_retries_exceeded", "req_transport_retries_exceeded", 32, NOWHERE, "mlx5"),
    _hw("resp_cqe_error", "resp_cqes_errors", 32, NOWHERE, "mlx5"),
    _hw("resp_cqe_flush_error", "resp_cqes_flush_errors", 32, NOWHERE, "mlx5"),
    _hw("resp_local_length_error", "resp_local_length_errors", 32, NOWHERE, "mlx5"),
    _hw("resp_remote_access_errors", "resp_remote_access_errors", 32, NOWHERE, "mlx5"),
    _hw("rp_cnp_ignored", "rp_cnp_ignored_packets_received", 64, NOWHERE, "mlx5"),
    _hw("roce_adp_retrans_to", "roce_adp_retransmits_timeout", 32, NOWHERE, "mlx5"),
    _hw("roce_slow_restart_cnps", "roce_slow_restart_cnps", 32, NOWHERE, "mlx5"),
    _hw("roce_slow_restart_trans", "roce_slow_restart", 32, NOWHERE, "mlx5"),
    # the same counters under the names of other drivers
    _hw("rq_num_oos", "out_of_sequence_packets_received", 32, EVERYWHERE, "mlx4"),
    _hw("sq_num_oos", "packet_sequence_errors", 32, EVERYWHERE, "mlx4"),
    _hw("rq_num_dup", "duplicate_requests_packets", 32, EVERYWHERE, "mlx4"),
    _hw("sq_num_rnr", "rnr_nak_retry_packets_received", 32, EVERYWHERE, "mlx4"),
    _hw("sq_num_to", "local_ack_timeout_errors", 32, EVERYWHERE, "mlx4"),
    _hw("oos_drop_count", "out_of_sequence_packets_received", 64, EVERYWHERE, "bnxt_re"),
    _hw("seq_err_naks_rcvd", "packet_sequence_errors", 64, EVERYWHERE, "bnxt_re"),
    _hw("dup_req", "duplicate_requests_packets", 64, EVERYWHERE, "bnxt_re"),
    _hw("rnr_naks_rcvd", "rnr_nak_retry_packets_received", 64, EVERYWHERE, "bnxt_re"),
    _hw("to_retransmits", "local_ack_timeout_errors", 64, EVERYWHERE, "bnxt_re"),
    _hw("rx_out_of_buffer", "out_of_buffer_drops", 64, EVERYWHERE, "bnxt_re"),
    _hw("tx_cnp_pkts", "np_cnp_packets_sent", 64, EVERYWHERE, "bnxt_re"),
    _hw("rx_ecn_marked_pkts", "np_ecn_marked_roce_packets_received", 64, EVERYWHERE, "bnxt_re"),
    _hw("rx_cnp_pkts", "rp_cnp_packets_handled", 64, EVERYWHERE, "bnxt_re"),
    _hw("Rcvd Out of order packets", "out_of_sequence_packets_received", 64, EVERYWHERE, "irdma"),
    _hw("Nak Sequence Error", "packet_sequence_errors", 64, EVERYWHERE, "irdma"),
    _hw("Nak Sequence Error Implied", "implied_nak_seq_errors", 64, NOWHERE, "irdma"),
    _hw("RNR received", "rnr_nak_retry_packets_received", 64, EVERYWHERE, "irdma"),
    _hw("RTO", "local_ack_timeout_errors", 64, EVERYWHERE, "irdma"),
    _hw("CRC errors", "rx_icrc_encapsulated_errors", 64, EVERYWHERE, "irdma"),
    _hw("cnpSent", "np_cnp_packets_sent", 64, EVERYWHERE, "irdma"),
    _hw("RxECNMrkd", "np_ecn_marked_roce_packets_received", 64, EVERYWHERE, "irdma"),
    _hw("cnpHandled", "rp_cnp_packets_handled", 64, EVERYWHERE, "irdma"),
    _hw("cnpIgnored", "rp_cnp_ignored_packets_received", 64, NOWHERE, "irdma"),
    _hw("RetransSegs", "hw_retrans_segs", 64, EVERYWHERE, "irdma"),
    _hw("tcpRetransSegs", "hw_retrans_segs", 64, EVERYWHERE, "irdma before Linux 7"),
    _hw("responder_oos", "out_of_sequence_packets_received", 64, EVERYWHERE, "mana"),
    _hw("requester_oos_nak", "packet_sequence_errors", 64, EVERYWHERE, "mana"),
    _hw("requester_implicit_nak", "implied_nak_seq_errors", 64, NOWHERE, "mana"),
    _hw("responder_dup_request", "duplicate_requests_packets", 64, EVERYWHERE, "mana"),
    _hw("requester_rnr_nak", "rnr_nak_retry_packets_received", 64, EVERYWHERE, "mana"),
    _hw("requester_timeout", "local_ack_timeout_errors", 64, EVERYWHERE, "mana"),
    _hw("received_cnps", "rp_cnp_packets_handled", 64, EVERYWHERE, "mana"),
    _hw("out_of_seq_request", "out_of_sequence_packets_received", 64, EVERYWHERE, "rxe"),
    _hw("rcvd_seq_err", "packet_sequence_errors", 64, EVERYWHERE, "rxe"),
    _hw("rcvd_rnr_err", "rnr_nak_retry_packets_received", 64, EVERYWHERE, "rxe"),
    _hw("send_rnr_err", "hw_send_rnr_err", 64, EVERYWHERE, "rxe"),
    _hw("completer_retry_err", "hw_completer_retry_err", 64, EVERYWHERE, "rxe"),
    _hw("RcSeqNak", "packet_sequence_errors", 64, EVERYWHERE, "hfi1"),
    _hw("RcDupRew", "duplicate_requests_packets", 64, EVERYWHERE, "hfi1"),
    _hw("RnrNak", "rnr_nak_retry_packets_received", 64, EVERYWHERE, "hfi1"),
    _hw("RcTimeOut", "local_ack_timeout_errors", 64, EVERYWHERE, "hfi1"),
    _hw("RcResend", "hw_rc_resend", 64, EVERYWHERE, "hfi1"),
    _hw("rx_drops", "hw_rx_drops", 64, EVERYWHERE, "efa"),
    _hw("retrans_pkts", "hw_retrans_pkts", 64, EVERYWHERE, "efa"),
    _hw("retrans_timeout_events", "hw_retrans_timeout_events", 64, EVERYWHERE, "efa"),
    _hw("unresponsive_remote_events", "hw_unresponsive_remote_events", 64, EVERYWHERE, "efa"),
    _hw("impaired_remote_conn_events", "hw_impaired_remote_conn_events", 64, EVERYWHERE, "efa"),
    _efa_device("no_completion_cmds"),
    _efa_device("cmds_err"),
    _efa_device("keep_alive_rcvd"),
    _efa_device("reg_mr_err"),
    _efa_device("create_qp_err"),
    _efa_device("create_cq_err"),
    _efa_device("create_ah_err"),
    # The firmware gives the names; those of a retransmission and of a timeout are newer than the others.
    _hw("resp_rx_outouf_seq", "out_of_sequence_packets_received", 64, EVERYWHERE, "ionic"),
    _hw("resp_rx_outof_seq", "out_of_sequence_packets_received", 64, EVERYWHERE, "ionic, in another spelling"),
    _hw("req_rx_pkt_seq_err", "packet_sequence_errors", 64, EVERYWHERE, "ionic"),
    _hw("req_rx_impl_nak_seq_err", "implied_nak_seq_errors", 64, NOWHERE, "ionic"),
    _hw("resp_rx_dup_request", "duplicate_requests_packets", 64, EVERYWHERE, "ionic"),
    _hw("req_rx_rnr_retry_err", "rnr_nak_retry_packets_received", 64, EVERYWHERE, "ionic"),
    _hw("tx_rdma_ack_timeout", "local_ack_timeout_errors", 64, EVERYWHERE, "ionic"),
    _hw("req_tx_retry_excd_err", "req_transport_retries_exceeded", 64, EVERYWHERE, "ionic"),
    _hw("resp_rx_outof_buf", "out_of_buffer_drops", 64, EVERYWHERE, "ionic"),
    _hw("tx_rdma_cnp_pkts", "np_cnp_packets_sent", 64, EVERYWHERE, "ionic"),
    _hw("rx_rdma_ecn_pkts", "np_ecn_marked_roce_packets_received", 64, EVERYWHERE, "ionic"),
    _hw("rx_rdma_cnp_pkts", "rp_cnp_packets_handled", 64, EVERYWHERE, "ionic"),
    _hw("tx_rdma_retx_pkts", "hw_tx_rdma_retx_pkts", 64, EVERYWHERE, "ionic"),
    _hw("tx_rdma_retx_bytes", "hw_tx_rdma_retx_bytes", 64, EVERYWHERE, "ionic"),
    Counter(NETDEV, "carrier_changes", "port_carrier_changes", 32, (ETHERNET,), "all with a network device"),
)
_BY_FILE = {(fact.folder, fact.file): fact for fact in FACTS}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to read. `name` is the exported metric, empty for a file that is read only for its side effect.

    `full` is the count at which the counter stops, None if it does not stop or if that is unknown.
    """

    folder: str
    file: str
    name: str = ""
    scale: int = 1
    full: int | None = None


def choose_counters(
    listed: Mapping[str, Sequence[str]], link_layer: str, driver: str, counter_set: CounterSet
) -> tuple[Wanted, ...]:
    """The files to read out of those in `listed`, which has the names by folder, in the cheapest order.

    Exported names are unique: if two files have the same name, the later one gets a number.
    """
    if counter_set == "none":
        return ()
    layer = INFINIBAND if link_layer == INFINIBAND else ETHERNET
    chosen = [
        _want(folder, file, driver)
        for folder in FOLDERS
        for file in listed.get(folder, ())
        if (
            not any(fnmatchcase(file, pattern) for pattern in LEVELS)
            if counter_set == "all" and folder in FOLDER_PREFIXES
            else _is_diagnostic(folder, file, layer, driver)
        )
    ]
    first = [wanted for wanted in chosen if wanted.file == REFRESHING_FILE]
    others = [wanted for wanted in chosen if wanted.file != REFRESHING_FILE]
    hardware = any(wanted.folder == HW_COUNTERS for wanted in others)
    if hardware and not first and REFRESHING_FILE in listed[HW_COUNTERS]:
        first = [Wanted(HW_COUNTERS, REFRESHING_FILE)]
    return tuple(_number_twins([*first, *others]))


def _is_diagnostic(folder: str, file: str, layer: str, driver: str) -> bool:
    fact = _BY_FILE.get((folder, file))
    return fact is not None and layer in fact.layers and driver not in fact.silent


def _want(folder: str, file: str, driver: str) -> Wanted:
    fact = _BY_FILE.get((folder, file))
    if fact is None:
        return Wanted(folder, file, counter_name(stem_of_file(folder, file)))
    return Wanted(folder, file, counter_name(fact.stem), fact.scale, _find_maximum(fact, driver))


def _find_maximum(fact: Counter, driver: str) -> int | None:
    if fact.folder == COUNTERS and driver in BROADCOM:
        return None
    if fact.bits < 64:
        return (1 << fact.bits) - 1
    # some devices have the legacy table, in which these have 32 bits; a wider counter is never exactly at this value
    return (1 << 32) - 1 if fact.folder == COUNTERS else None


def choose_signals(port_folder: str, link_layer: str, driver: str, netlink: bool) -> SignalSource | None:
    """The counters of the port at `port_folder` that are signs of congestion; None if it has none.

    They are diagnostic counters of the table, the most telling ones, by their order in `MEANINGS`. With `netlink`,
    those of `hw_counters` are asked for.
    """
    listed = {folder: list_names(os.path.join(port_folder, folder)) for folder in (HW_COUNTERS, COUNTERS)}
    layer = INFINIBAND if link_layer == INFINIBAND else ETHERNET
    found: dict[str, Counter] = {}
    for folder, names in listed.items():
        for name in names:
            fact = _BY_FILE.get((folder, name))
            if fact and fact.stem in MEANINGS and _is_diagnostic(folder, name, layer, driver) and _counts(fact, driver):
                found.setdefault(fact.stem, fact)
    ordered = [found[stem] for stem in MEANINGS if stem in found]
    own = [fact for fact in ordered if fact.folder == COUNTERS][:MAX_FIRMWARE_READS]
    asked = [fact for fact in ordered if fact.folder == HW_COUNTERS][: MAX_SIGNALS - len(own)]
    if not asked and not own:
        return None
    refreshes = asked and not netlink and REFRESHING_FILE in listed[HW_COUNTERS]
    return SignalSource(
        tuple(
            Signal(fact.stem, fact.bits, fact.bits < 64 and _find_maximum(fact, driver) is not None)
            for fact in [*asked, *own]
        ),
        tuple(os.path.join(port_folder, fact.folder, fact.file) for fact in [*asked, *own]),
        len(asked),
        netlink and bool(asked),
        os.path.join(port_folder, HW_COUNTERS, REFRESHING_FILE) if refreshes else "",
    )


def _counts(fact: Counter, driver: str) -> bool:
    return fact.stem != "port_transmit_wait" or driver in WAITING_DRIVERS


def _number_twins(wanted: Sequence[Wanted]) -> Iterator[Wanted]:
    taken: set[str] = set()
    for one in wanted:
        name, number = one.name, 2
        while name and name in taken:
            stem = one.name.removesuffix("_total")
            name, number = f"{stem}_{number}_total", number + 1
        taken.add(name)
        yield one if name == one.name else Wanted(one.folder, one.file, name, one.scale, one.full)


@dataclass(slots=True)
class _Trouble:
    """A file that failed `times` in a row; it is not read again before `again_ns`."""

    times: int = 0
    pause_ns: int = 0
    again_ns: int = 0


def _take(wanted: Wanted, count: int, taken_ns: int) -> list[CounterReading]:
    """The reading of a counter; none of one that is read only for its side effect."""
    if not wanted.name:
        return []
    return [CounterReading(wanted.name, wanted.file, count * wanted.scale, taken_ns, count == wanted.full)]


class CounterReader:
    """Reads the chosen counters of the port at `folder`; the first read lists the files.

    `netdev` is the folder of its network device, or empty. Not thread-safe. `clock` is monotonic, in nanoseconds.
    """

    def __init__(
        self,
        port: PortId,
        folder: str,
        link_layer: str,
        driver: str,
        counter_set: CounterSet,
        clock: Callable[[], int] = time.monotonic_ns,
        netdev: str = "",
    ) -> None:
        self.remark = ""
        self._port = port
        self._folders = {name: os.path.join(folder, name) for name in (COUNTERS, HW_COUNTERS)}
        if netdev:
            self._folders[NETDEV] = netdev
        self._device_counters = str(Path(folder).parents[1] / HW_COUNTERS)
        self._link_layer = link_layer
        self._driver = driver
        self._counter_set = counter_set
        self._clock = clock
        self._wanted: tuple[Wanted, ...] | None = None
        self._troubles: dict[str, _Trouble] = {}

    def read(self, message: Mapping[str, int] = NO_MESSAGE) -> PortReadings:
        """The counters that can be read now; none if the device has disappeared.

        `message` has the counters of `hw_counters` that were just asked for, so that their files need not be read.
        """
        message_ns = self._clock() if message else 0
        if self._wanted is None:
            self._wanted = self._choose()
        readings: list[CounterReading] = []
        for wanted in self._wanted:
            if wanted.folder == HW_COUNTERS and (asked := message.get(wanted.file, ALL_ONES)) < ALL_ONES:
                readings += _take(wanted, asked, message_ns)
                continue
            path = os.path.join(self._folders[wanted.folder], wanted.file)
            before = self._clock()
            trouble = self._troubles.get(path)
            if trouble is not None and before < trouble.again_ns:
                continue
            text = read_text(path)
            after = self._clock()
            if text.code == errno.ENODEV:
                return PortReadings(self._port, ())
            count = parse_count(text.text)
            if wanted.folder == NETDEV and text.fault is ReadFault.MISSING:
                # it was renamed or moved to another network namespace, where it may work as it should
                continue
            if count is None:
                self._note_trouble(path, wanted, text, after)
            else:
                self._troubles.pop(path, None)
                readings += _take(wanted, count, (before + after) // 2)
            if after - before > SLOW_READ_NS:
                break
        if not any(trouble.times >= TRIES for trouble in self._troubles.values()):
            self.remark = ""
        return PortReadings(self._port, tuple(readings))

    def _choose(self) -> tuple[Wanted, ...]:
        listed = {name: list_names(folder) for name, folder in self._folders.items()}
        if self._driver == EFA and listed[HW_COUNTERS]:
            # In a pod's view of a device, where its ports have no counters, a read of these can crash a kernel.
            self._folders[DEVICE_HW_COUNTERS] = self._device_counters
            listed[DEVICE_HW_COUNTERS] = list_names(self._device_counters)
        return choose_counters(listed, self._link_layer, self._driver, self._counter_set)

    def _note_trouble(self, path: str, wanted: Wanted, text: Text, now_ns: int) -> None:
        trouble = self._troubles.setdefault(path, _Trouble())
        trouble.times += 1
        if trouble.times < TRIES:
            return
        refused = text.code in REFUSALS or text.fault in (ReadFault.NO_PMA, ReadFault.NONE)
        if refused:
            trouble.pause_ns = min(max(FIRST_PAUSE_NS, 2 * trouble.pause_ns), MAX_PAUSE_NS)
            trouble.again_ns = now_ns + trouble.pause_ns
        if not text.reason and self._counter_set == "all":
            # a file that never holds a number is not an error if all files are read
            return
        reason = text.reason or f"holds '{text.text[:40]}', which is not a count"
        self.remark = self.remark or (
            f"some of its error counters have no value, such as {wanted.folder}/{wanted.file}, which {reason}; "
            f"they are omitted and retried {'from time to time' if refused else 'at every scan'}."
        )
