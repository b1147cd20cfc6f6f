"""`docs/counters.md`: what the error and congestion counters say, with tables written from the table of facts."""

from __future__ import annotations

from collections.abc import Iterable

from ibpulse.metrics import OTHER_COUNTERS
from ibpulse.metrics.counters import counter_name
from ibpulse.simulate.tree import COUNTERS as MLX5_COUNTERS
from ibpulse.simulate.tree import HW_COUNTERS as MLX5_HW_COUNTERS
from ibpulse.sysfs.diagnostic_reader import FIRST_PAUSE_NS, LONGEST_PAUSE_NS, TRIES
from ibpulse.sysfs.diagnostics import FACTS, INFINIBAND, Counter, CounterSet, choose_counters
from ibpulse.sysfs.speed import ETHERNET
from ibpulse.units import SECOND_NS

# Exported names without prefix and suffix, the side that counts them, what it means when they rise.
MEANINGS = (
    (
        ("port_transmit_wait",),
        "sender",
        "It had data and no credits: the switch or the receiver takes data more slowly than the port sends. Normal in "
        "an all-to-all; on one rail alone, look at that rail's switch port and receivers.",
    ),
    (
        ("port_discards_transmitted",),
        "sender",
        "It gave up waiting and dropped packets: the port was down, or congestion lasted.",
    ),
    (
        ("np_ecn_marked_roce_packets_received", "np_cnp_packets_sent"),
        "responder",
        "RoCE: a switch queue on the way to this port is long, and this port asks the senders to slow down: incast.",
    ),
    (
        ("rp_cnp_packets_handled",),
        "requester",
        "RoCE: this port was asked to slow down and did. Its rate falls, and nothing is broken.",
    ),
    (
        ("out_of_sequence_packets_received",),
        "responder",
        "Packets came in another order. With adaptive routing that is normal; without it, packets were lost.",
    ),
    (("packet_sequence_errors",), "requester", "The other side missed a packet of ours: loss on our path."),
    (
        ("duplicate_requests_packets",),
        "responder",
        "The other side sent a request again: its packet or our answer was lost.",
    ),
    (
        ("local_ack_timeout_errors",),
        "requester",
        "No answer in time: the earliest sign of a dead path or a peer that hangs. Traffic of that connection stops "
        "until the timeout, which the samples show as a gap.",
    ),
    (
        ("roce_adp_retransmits",),
        "requester",
        "RoCE: the device sent again by itself, sooner than the timeout: loss on the way, mended quickly.",
    ),
    (
        ("rnr_nak_retry_packets_received",),
        "requester",
        "The peer had no receive buffer posted: its software is late, not the network.",
    ),
    (("out_of_buffer_drops",), "responder", "The same, seen from the side whose software is late."),
    (
        ("symbol_error", "port_errors_received", "rx_icrc_encapsulated_errors"),
        "receiver",
        "Bits are damaged: cable, transceiver, dirty fibre.",
    ),
    (
        ("link_error_recovery", "link_downed"),
        "both ends",
        "The link retrained or went down: the same causes, or somebody pulled the cable.",
    ),
)


def counters_markdown() -> str:
    """The text of `docs/counters.md`."""
    diagnostic = {layer: _count_series(layer, "diagnostic") for layer in (INFINIBAND, ETHERNET)}
    parts = [
        _TEXT.format(
            tries=TRIES,
            pause=FIRST_PAUSE_NS // SECOND_NS,
            longest=LONGEST_PAUSE_NS // SECOND_NS // 60,
            infiniband=diagnostic[INFINIBAND],
            ethernet=diagnostic[ETHERNET],
            every=_count_series(INFINIBAND, "all"),
            meanings=_meanings_table(),
        ),
        _table(fact for fact in FACTS if fact.layers),
        _ALL,
        _table(fact for fact in FACTS if not fact.layers),
    ]
    return "\n".join(parts)


def _count_series(layer: str, counter_set: CounterSet) -> int:
    listed = {"counters": MLX5_COUNTERS, "hw_counters": MLX5_HW_COUNTERS}
    chosen = choose_counters(listed, layer, "mlx5_core", counter_set)
    return sum(bool(wanted.name) for wanted in chosen)


def _meanings_table() -> str:
    lines = [f"| {', '.join(f'`{stem}`' for stem in stems)} | {side} | {text} |" for stems, side, text in MEANINGS]
    return "\n".join(["| what rises | on | what it means, and where to look |", "|---|---|---|", *lines, ""])


def _table(facts: Iterable[Counter]) -> str:
    lines = [_row(fact) for fact in facts]
    head = ["| metric | file | bits | read on | drivers |", "|---|---|---|---|---|"]
    return "\n".join([*head, *lines, ""])


def _row(fact: Counter) -> str:
    layers = " and ".join("RoCE" if layer == ETHERNET else layer for layer in fact.layers) or "`all` only"
    return f"| `{counter_name(fact.stem)}` | `{fact.folder}/{fact.file}` | {fact.bits} | {layers} | {fact.drivers} |"


_TEXT = """\
# Error and congestion counters

This page is written by a program from the table of counters.

The samples of 10 ms show *that* a rail stalls. The counters on this page say *why*. They are read every
`slow.interval` (5 s), beside the samples and never for a scrape, in a thread per device: a device that hangs holds up
no other, keeps the status that was last known, and after three looks without an answer has no counters.

- **Totals** begin at the counter's own value and grow by every difference, also over resets and while the device was
  away. A counter that is lower than before was cleared, or wrapped: what it shows is added, what it counted unseen is
  lost. So a total is a lower bound, and never falls.
- **A read that fails is no value**, never 0. A file that refuses {tries} times in a row is left alone and tried again
  after {pause} s, then ever more rarely, at last every {longest} minutes. There is one notice for a port, however many
  of its files fail.
- **Names** are those of node_exporter, with `ibpulse_` in place of `node_infiniband_`.

## What they say when a rail stalls

A *requester* is the side that sends a request (for a write, the sender of the data); the *responder* receives it. So a
loss on the way is seen on both sides, under different names.

{meanings}
## Traps

- **Counters stop when they are full.** A 4-, 8-, 16- or 32-bit counter of `counters/` stays at 15, 255, 65535 or
  4294967295 until somebody clears the port (`perfquery -R`); ibpulse never does. While it does, its rate is 0 whatever
  happens, and `ibpulse_port_counter_saturated{{counter="link_downed"}}` is 1. The series is there only then. Those of
  Broadcom wrap instead. Whether the 32-bit counters of mlx5's queues stop or wrap is not published.
- **The length of a tick** of `port_transmit_wait` depends on the device and is not in sysfs; `perfquery -c` tells it.
  Recent NVIDIA devices are said to count one per 8 bytes of port time. With `slow.xmit-wait-tick=8`,
  `ibpulse_port_transmit_stalled_ratio` is the share of time in which the port was stalled. At 400 Gb/s a counter of 32
  bits is then full after 0.69 s of stall, so on a busy fabric it mostly stands still, and there is no ratio.
- **Whose counter it is.** On mlx5 the error counters of `counters/` and `port_transmit_wait` are those of the physical
  port: every function on it, also every virtual one, shows the same, so do not add them up. A virtual function may show
  zeros or refuse. `hw_counters/` and the bytes are those of the function.
- **32 bits** of `rx_write_requests` wrap in under a minute at 100 million requests a second; the total is then too low.
- **On RoCE** most error counters of `counters/` stay 0, so few are read; `ethtool -S` has the errors of the link.
- **The cache.** The kernel keeps `hw_counters/` for `lifespan` (10 ms). On mlx5 only `rx_write_requests` renews it, so
  that file is read first: the set then costs 2 to 4 firmware commands, in any other order up to 100.
- **Drivers differ.** Where drivers count the same thing under other names, the metric is the same; see the table.

## In PromQL

Ports with errors in the last hour, ports whose counters say nothing any more, congestion notifications per second, loss
per gigabyte sent, and the share of time stalled over any window (with a tick of 8 bytes):

```promql
increase(ibpulse_symbol_error_total[1h]) > 0 or increase(ibpulse_link_downed_total[1h]) > 0

ibpulse_port_counter_saturated

sum by (instance) (rate(ibpulse_rp_cnp_packets_handled_total[5m]))

rate(ibpulse_packet_sequence_errors_total[5m]) / on (instance, device, port)
  (rate(ibpulse_port_transmit_bytes_total[5m]) / 1e9)

rate(ibpulse_port_transmit_wait_total[5m]) * 8 / on (instance, device, port) ibpulse_port_rate_bytes_per_second

max_over_time(ibpulse_port_transmit_stalled_ratio[1h])
```

The last but one is wrong while `ibpulse_port_counter_saturated{{counter="port_xmit_wait"}}` is there.

## Which are read

`slow.counters=diagnostic` (the default) reads those that explain the traffic. On an InfiniBand port of mlx5
`diagnostic` is {infiniband} series, `all` is {every}; on a RoCE port `diagnostic` is {ethernet}. Eight such ports
with `all` pass 1000 series for the node. `none` reads nothing. A port has the counters that its driver has; *RoCE*
stands for every port that is not InfiniBand.
"""
_ALL = f"""\
`slow.counters=all` reads every file of `counters/` and of the port's `hw_counters/` that holds a number, but for
numbers that also fall (`active_qps`, `current_rate`). Beside those above ({len(OTHER_COUNTERS)} more have names of
node_exporter or like it), a file is called after itself: `hw_counters/SwLinkUp,32` is `ibpulse_hw_sw_link_up_32_total`,
one of `counters/` begins with `ibpulse_pma_`, and of two files with the same name the second ends in `_2_total`. The
`hw_counters` of a device, beside those of its ports, are never read: in a container some kernels crash.
"""
