"""Turns a run into what ibpulse could read: byte samples, counters as each driver shows them, and the truth.

Names and widths are those of the kernel's drivers. A counter of `counters/` stops at its maximum until somebody clears
all of them; one of mlx5's queues wraps at 32 bits; all others have 64 bits. A counter without event never moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.congestion.network import (
    PORTS,
    STEP,
    STEPS_PER_TICK,
    TICKS_PER_READING,
    Limit,
    Network,
    Run,
    Scenario,
)

MISSING = -1
WAIT_UNIT = 8
MARKING = ("notices_sent", "marks_seen", "notices_obeyed")
NOTICEABLE = 0.1
HARDLY = 0.005
NEXT_TO_NOTHING = 0.01
MENTIONED = 0.02
# Families whose counters of waiting or marks move whenever the network holds the sender back, and are read often.
LIVE = ("mlx5 InfiniBand", "mlx5 RoCE", "ionic", "irdma")
# file: event that it counts, bits, whether it stops when full
Table = dict[str, tuple[str, int, bool]]

_QUEUES: Table = {
    "out_of_sequence": ("out_of_order", 32, False),
    "packet_seq_err": ("sequence_naks", 32, False),
    "duplicate_request": ("duplicates", 32, False),
    "rnr_nak_retry_err": ("rnr_received", 32, False),
    "local_ack_timeout_err": ("timeouts", 32, False),
    "out_of_buffer": ("refused", 32, False),
}
_PORT: Table = {"port_xmit_wait": ("waited_bytes", 32, True), "link_downed": ("link_downs", 8, True)}
_ROCE: Table = {
    "np_cnp_sent": ("notices_sent", 64, False),
    "np_ecn_marked_roce_packets": ("marks_seen", 64, False),
    "rp_cnp_handled": ("notices_obeyed", 64, False),
    "rx_icrc_encapsulated": ("", 64, False),
    "roce_adp_retrans": ("sequence_naks", 32, False),
}
_INFINIBAND = (
    _QUEUES
    | _PORT
    | {
        "link_error_recovery": ("recoveries", 8, True),
        "symbol_error": ("bit_errors", 16, True),
        "port_rcv_errors": ("bit_errors", 16, True),
    }
)
_MLX5_ROCE = _QUEUES | _ROCE | _PORT | {"port_xmit_wait": ("", 32, True)}
COUNTERS: dict[str, Table] = {
    "mlx5 InfiniBand": _INFINIBAND,
    "mlx5 InfiniBand, waiting full": _INFINIBAND,
    "mlx5 RoCE": _MLX5_ROCE,
    "mlx5 RoCE, pauses only": _MLX5_ROCE,
    "bnxt_re": {
        "oos_drop_count": ("out_of_order", 64, False),
        "seq_err_naks_rcvd": ("sequence_naks", 64, False),
        "dup_req": ("duplicates", 64, False),
        "rnr_naks_rcvd": ("rnr_received", 64, False),
        "to_retransmits": ("timeouts", 64, False),
        "rx_out_of_buffer": ("refused", 64, False),
        "tx_cnp_pkts": ("notices_sent", 64, False),
        "rx_ecn_marked_pkts": ("marks_seen", 64, False),
        "rx_cnp_pkts": ("notices_obeyed", 64, False),
    },
    "ionic": {
        "resp_rx_outouf_seq": ("out_of_order", 64, False),
        "req_rx_pkt_seq_err": ("sequence_naks", 64, False),
        "resp_rx_dup_request": ("duplicates", 64, False),
        "req_rx_rnr_retry_err": ("rnr_received", 64, False),
        "tx_rdma_ack_timeout": ("timeouts", 64, False),
        "resp_rx_outof_buf": ("refused", 64, False),
        "tx_rdma_cnp_pkts": ("notices_sent", 64, False),
        "rx_rdma_ecn_pkts": ("marks_seen", 64, False),
        "rx_rdma_cnp_pkts": ("notices_obeyed", 64, False),
        "tx_rdma_retx_pkts": ("resent_packets", 64, False),
    },
    "irdma": {
        "Rcvd Out of order packets": ("out_of_order", 64, False),
        "Nak Sequence Error": ("sequence_naks", 64, False),
        "RNR received": ("rnr_received", 64, False),
        "RTO": ("timeouts", 64, False),
        "cnpSent": ("notices_sent", 64, False),
        "RxECNMrkd": ("marks_seen", 64, False),
        "cnpHandled": ("notices_obeyed", 64, False),
        "RetransSegs": ("resent_packets", 64, False),
    },
    "efa": {
        "rx_drops": ("dropped_at_receiver", 64, False),
        "retrans_pkts": ("resent_packets", 64, False),
        "retrans_timeout_events": ("timeouts", 64, False),
        "unresponsive_remote_events": ("", 64, False),
        "impaired_remote_conn_events": ("", 64, False),
    },
    "rxe": {
        "out_of_seq_request": ("out_of_order", 64, False),
        "rcvd_seq_err": ("sequence_naks", 64, False),
        "rcvd_rnr_err": ("rnr_received", 64, False),
        "duplicate_request": ("duplicates", 64, False),
        "link_downed": ("link_downs", 8, True),
    },
}


@dataclass(frozen=True)
class Observation:
    """One scenario as a daemon would see it, and the truth.

    P ports have T samples and R readings. Times are nanoseconds. `transmit` and `receive` are totals of bytes as the
    driver counts them. Counters are (P, R), `MISSING` where a read failed. `link_rate` (P, T) is the line rate of
    the lanes that work at a sample, 0 while the link is down. `usual_peak` (P,) is the highest rate of a 10 ms sample
    in the rail's past, bytes per second. `lost` (P, R - 1, kinds) are the seconds of the line's time between two
    readings in which nothing new was sent, per `Limit`, and `active` (P, R - 1) those in which the port had bytes to
    send.
    """

    scenario: Scenario
    sample_times: Any
    transmit: Any
    receive: Any
    reading_times: Any
    counters: dict[str, Any]
    link_rate: Any
    usual_peak: Any
    lost: Any
    active: Any

    def truth(self) -> Any:
        """What limited each port between two readings (P, R - 1), as a `Limit`.

        That which cost most of the line's time; `LINE` if less than `NOTICEABLE` of the active time was lost, and
        `IDLE` if the port transmitted next to nothing.
        """
        kinds = np.array([kind not in (Limit.IDLE, Limit.LINE) for kind in Limit])
        lost = np.where(kinds, self.lost, 0)
        most = np.where(lost.sum(axis=-1) < NOTICEABLE * self.active, Limit.LINE, lost.argmax(axis=-1))
        rates = np.diff(self.transmit, axis=1) * 1e9 / np.diff(self.sample_times, axis=1) / self.scenario.nominal
        first = np.arange(PORTS)[:, None] + TICKS_PER_READING * np.arange(most.shape[1])
        within = first[..., None] + np.arange(TICKS_PER_READING)
        highest = rates[np.arange(PORTS)[:, None, None], within].max(axis=-1)
        return np.where((highest < NEXT_TO_NOTHING) | (self.active < HARDLY), Limit.IDLE, most)

    def live(self) -> Any:
        """Where the driver's counters of waiting or marks move, and none of its counters is full (P, R - 1)."""
        full = np.zeros(self.reading_times.shape, bool)
        for name, (_, bits, stops) in COUNTERS[self.scenario.family].items():
            full |= (self.counters[name] == 2**bits - 1) & stops
        return ~(full[:, 1:] | full[:, :-1]) & (self.scenario.family in LIVE)

    def only_source(self) -> Any:
        """Where nothing but the source cost time worth mentioning (P, R - 1)."""
        others = self.lost.sum(axis=-1) - self.lost[..., Limit.SOURCE] - self.lost[..., Limit.LINE]
        return (self.truth() == Limit.SOURCE) & (others < MENTIONED * self.active)


def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
    """Run the scenarios together and read their counters."""
    run = Network(scenarios).run()
    return [_observe(scenario, run, which) for which, scenario in enumerate(scenarios)]


def _observe(scenario: Scenario, run: Run, which: int) -> Observation:
    random = np.random.default_rng([scenario.seed, 2])
    ticks = run.sent.shape[0]
    late = np.minimum(random.exponential(0.25, (ticks, 1)) + random.exponential(0.1, (ticks, PORTS)), 3.99).astype(int)
    rows, ports = np.arange(ticks)[:, None], np.arange(PORTS)
    full = scenario.family.endswith("waiting full")
    origin = random.integers(10**14, 10**15)
    steps = np.arange(ticks)[:, None] * STEPS_PER_TICK + late + 1
    sent, received = (taken[rows, late, which, ports].T for taken in (run.sent, run.received))
    first = np.arange(PORTS)[:, None] + TICKS_PER_READING * np.arange(run.events["timeouts"].shape[0])
    counters = {
        name: _count(random, kind, run.events[kind[0]][:, which].T, full, scenario)
        if kind[0]
        else np.zeros(first.shape, np.int64)
        for name, kind in COUNTERS[scenario.family].items()
    }
    past = scenario.rate * random.uniform(0.96, 1.0, PORTS)
    return Observation(
        scenario,
        origin + np.rint(steps.T * STEP * 1e9).astype(np.int64),
        _count_bytes(random, sent),
        _count_bytes(random, received),
        origin + np.rint((first * STEPS_PER_TICK + 1) * STEP * 1e9).astype(np.int64),
        counters,
        scenario.nominal * scenario.width.T,
        past if random.random() < 0.8 else np.diff(sent, axis=1).max(axis=1) / (STEP * STEPS_PER_TICK),
        *_lost(run.limits[:, which].T, run.used[:, which].T, first * STEPS_PER_TICK + 1),
    )


def _count_bytes(random: Any, totals: Any) -> Any:
    start = random.integers(0, 2**50, (PORTS, 1))
    return start + np.floor(totals / 4).astype(np.int64) * 4


def _count(random: Any, kind: tuple[str, int, bool], events: Any, full: bool, scenario: Scenario) -> Any:
    """Values of one file (P, R): a random start, at times soon before the wrap, at times with reads that failed."""
    event, bits, stops = kind
    top = 2 ** min(bits, 62)
    start = random.integers(0, 5 if bits == 8 else top // 100, (PORTS, 1))
    if event == "waited_bytes":
        events = events / WAIT_UNIT
        start = np.full((PORTS, 1), top - 1) if full else start
    elif event in MARKING and not scenario.marks:
        start = start * 0
    elif bits == 32 and random.random() < 0.2:
        start = top - 1 - random.integers(0, 1000, (PORTS, 1))
    values = start + np.floor(events).astype(np.int64)
    if stops:
        values = np.minimum(values, top - 1)
    if stops and (cleared := scenario.cleared):
        since = np.floor(events[:, cleared:] - events[:, cleared : cleared + 1])
        values[:, cleared:] = np.minimum(since, top - 1)
    failed = random.random(values.shape) < scenario.failing
    return np.where(failed, MISSING, values % top)


def _lost(limits: Any, used: Any, bounds: Any) -> tuple[Any, Any]:
    """Seconds of the line lost per limit, and seconds of activity, between readings.

    The source has the silences that are shorter than a sample; longer ones are no activity.
    """
    steps = np.arange(limits.shape[1])
    acts = limits != Limit.IDLE
    before = np.maximum.accumulate(np.where(acts, steps, -STEPS_PER_TICK), axis=1)
    after = np.minimum.accumulate(np.where(acts, steps, 2 * len(steps))[:, ::-1], axis=1)[:, ::-1]
    active = acts | (after - before <= STEPS_PER_TICK)
    limits = np.where(active & ~acts, Limit.SOURCE, limits)

    def between(seconds: Any) -> Any:
        totals = np.concatenate([np.zeros((PORTS, 1)), (seconds * STEP).cumsum(axis=1)], axis=1)
        return np.diff(np.take_along_axis(totals, bounds, axis=1), axis=1)

    lost = active * (1 - used / 100)
    return np.stack([between(np.where(limits == kind, lost, 0)) for kind in Limit], axis=-1), between(active)
