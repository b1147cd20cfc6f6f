"""`docs/metrics.md` and `docs/counters.md`, written from the tables of metrics and of the kernel's counters."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ibpulse.agent.metrics.page import TABLE
from ibpulse.agent.metrics.ports import DIAGNOSTIC_COUNTERS, OTHER_COUNTERS, STATE_ROWS
from ibpulse.agent.sysfs.byte_counters import SOURCES, ByteCounterRow
from ibpulse.agent.sysfs.error_counters import (
    FACTS,
    FIRST_PAUSE_NS,
    MAX_PAUSE_NS,
    TRIES,
    Counter,
    CounterSet,
    choose_counters,
    counter_name,
)
from ibpulse.agent.sysfs.speed import ETHERNET, INFINIBAND
from ibpulse.base.units import SECOND_NS
from ibpulse.core.metrics.row import Metric
from ibpulse.core.metrics.text import process_registry
from ibpulse.core.signals import MAX_FIRMWARE_READS, MAX_SIGNALS, SIGNS
from ibpulse.core.signals import MEANINGS as SIGNALS
from ibpulse.gateway.service import ROWS as GATEWAY_ROWS
from ibpulse.workbench.simulate.tree import COUNTERS as MLX5_COUNTERS
from ibpulse.workbench.simulate.tree import HW_COUNTERS as MLX5_HW_COUNTERS
from tools.grafana.alerts import ALERTS

_PREFACE = """\
# Metrics

In the order of `/metrics`. Series of ports and of error counters have the labels `device` and `port`. Units are base
units, at the end of the name.

**Windows** (`window` label) end at the newest aggregated sample, `ibpulse_aggregated_until_timestamp_seconds`, and
cover exactly that many whole seconds; a scrape sees one that ended 0.3 s to 1.4 s ago. If the window is at least as
long as the scrape interval, `max_over_time` of a peak misses nothing.

**Bytes, observed and active seconds, and utilisation of ports** end at the newest sample that no later one can revise,
so `rate(…_bytes_total)` over any two scrapes is right to one sample. Counters of bursts and of the node end with the
last aggregated second.

**Unknown values are absent**, never NaN and never 0 (except for the step period, where NaN means that none was found).
A port that left the fabric has no series; its totals continue when it comes back. A *good sample* has both counters
read at both ends, and no reset in between.

**Counters start at 0 with the process**, except the error and congestion counters, which start at the value of the
port's own counter. [promql.md](promql.md) has recipes.
"""

_SECTIONS = (
    ("Ports", ("ibpulse_port_",)),
    ("Node: the sum over its rails", ("ibpulse_node_",)),
    ("Jobs", ("ibpulse_job_",)),
    ("Devices", ("ibpulse_device_",)),
    ("Sampler", ("ibpulse_sampler_", "ibpulse_cgroup_")),
    (
        "Exporter",
        (
            *("ibpulse_aggregat", "ibpulse_events_", "ibpulse_simulated", "ibpulse_build_"),
            *("ibpulse_internal_", "ibpulse_unreliable"),
        ),
    ),
    ("Flight recorder", ("ibpulse_capture",)),
    ("Web server", ("ibpulse_web_", "ibpulse_http_")),
)

OF_A_PORT = ("device", "port")
_COUNTERS = (*DIAGNOSTIC_COUNTERS, *STATE_ROWS)
_COUNTERS_TEXT = """\
Read every `slow.interval` with `slow.counters=diagnostic`; see [counters.md](counters.md).

"""
_GATEWAY_TEXT = "Of `ibpulse gateway`, which also has the families of the web server and of the process.\n\n"
_PROCESS_TEXT = "Of the main process, by the Prometheus client library, which describes them:\n\n"
_ALL = f"""\
`slow.counters=all` reads every file in `counters/` and in the port's `hw_counters/` that holds a number, except numbers
that can also decrease. Of these, {len(OTHER_COUNTERS)} have names like
those of node_exporter. Every other metric is named after its file: `hw_counters/SwLinkUp,32` becomes
`ibpulse_hw_sw_link_up_32_total`, a file in `counters/` gets the prefix `ibpulse_pma_`. Of the `hw_counters` of a
device, only those of EFA are read, and only where its port has counters too: elsewhere some kernels crash.
"""


def metrics_markdown() -> str:
    """The text of `docs/metrics.md`."""
    parts = [_PREFACE]
    for title, prefixes in _SECTIONS:
        rows = [metric for metric in TABLE if metric.name.startswith(prefixes) and metric not in _COUNTERS]
        parts += _section(title, _rows(rows))
    parts += _section("Gateway", map(_row, GATEWAY_ROWS), _GATEWAY_TEXT)
    parts += _section("Error and congestion counters", map(_row, _COUNTERS), _COUNTERS_TEXT)
    parts += _section("Process", [f"{', '.join(_library_names())}.\n"], _PROCESS_TEXT)
    parts += ["\n## Buckets\n\n", *_buckets()]
    return "".join(parts)


def _section(title: str, rows: Iterable[str], text: str = "") -> list[str]:
    return [f"\n## {title}\n\n{text}", *rows]


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
    """The lines of metrics; consecutive ones of the receive direction share one."""
    for received, group in itertools.groupby(metrics, lambda metric: "_receive_" in metric.name):
        if received:
            yield f"- As for transmit: {', '.join(f'`{metric.name}`' for metric in group)}.\n"
        else:
            yield from map(_row, group)


def _row(metric: Metric) -> str:
    kind = "gauge" if metric.type == "info" else metric.type
    labels = [label for label in metric.labels if metric.labels[:2] != OF_A_PORT or label not in OF_A_PORT]
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"- `{metric.name}` ({kind}{'; ' * bool(shown)}{shown}): {metric.help}\n"


def _library_names() -> Iterator[str]:
    return (f"`{family.samples[0].name}`" for family in process_registry().collect())


def _buckets() -> Iterator[str]:
    for buckets in dict.fromkeys(metric.buckets for metric in TABLE if metric.buckets):
        names = ", ".join(f"`{metric.name}`" for metric in TABLE if metric.buckets == buckets)
        yield f"- {names}: {', '.join(map(repr, buckets))}, +Inf\n"


# Exported names without prefix and suffix, the side that counts them, and the meaning of a rise.
MEANINGS = (
    (
        ("port_transmit_wait",),
        "sender",
        "The port had data but no credits: the switch or the receiver accepts data more slowly than the port sends. "
        "Normal in an all-to-all. If only one rail shows it, check that rail's switch port and its receivers.",
    ),
    (
        ("port_discards_transmitted",),
        "sender",
        "The port gave up waiting and dropped packets: it was down, or the congestion lasted too long.",
    ),
    (
        ("np_ecn_marked_roce_packets_received", "np_cnp_packets_sent"),
        "responder",
        "RoCE: a switch queue on the path to this port is long, and this port asks the senders to slow down: incast.",
    ),
    (
        ("rp_cnp_packets_handled",),
        "requester",
        "RoCE: this port was asked to slow down and did. Its rate drops, but nothing is broken.",
    ),
    (
        ("out_of_sequence_packets_received",),
        "responder",
        "Packets arrived out of order. With adaptive routing this is normal; without it, packets were lost.",
    ),
    (
        ("packet_sequence_errors",),
        "requester",
        "The peer is missing a packet that this port sent: loss on the path from this port.",
    ),
    (
        ("duplicate_requests_packets",),
        "responder",
        "The peer repeated a request: its packet or the response was lost.",
    ),
    (
        ("local_ack_timeout_errors",),
        "requester",
        "No response in time: the earliest sign of a dead path or a hung peer. Traffic of that connection stops until "
        "the timeout, which the samples show as a gap.",
    ),
    (
        ("roce_adp_retransmits",),
        "requester",
        "RoCE: the device retransmitted on its own, before the timeout: loss on the path, recovered quickly.",
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
        "Bit errors: cable, transceiver, dirty fibre.",
    ),
    (
        ("link_error_recovery", "link_downed", "port_carrier_changes"),
        "both ends",
        "The link retrained or went down: the same causes, or the cable was pulled. A carrier that is lost and found "
        "again counts two.",
    ),
    (
        ("hw_tx_rdma_retx_pkts", "hw_tx_rdma_retx_bytes"),
        "requester",
        "ionic: what was sent again: loss on the path from this port, or a late acknowledgement.",
    ),
    (("hw_send_rnr_err",), "responder", "Soft-RoCE: no receive buffer was posted: the software of this node is late."),
    (("hw_completer_retry_err",), "requester", "Soft-RoCE: something was sent again: loss, or a late acknowledgement."),
    (
        ("req_transport_retries_exceeded",),
        "requester",
        "A connection failed after its last retry; the job fails with it.",
    ),
    (
        ("hw_device_no_completion_cmds", "hw_device_cmds_err"),
        "device",
        "EFA: administrative commands hang or fail: the adapter and its firmware, not the network.",
    ),
)

# What NVSentinel calls a fault with its default configuration, what ibpulse does, and why they differ. Names in braces
# are thresholds of the alerts.
NVSENTINEL = (
    (
        "`link_downed`",
        "any, fatal",
        "`IBPulseLinkWentDown`: down and up in {drop_window}, warning; `IBPulseLinkDown`: down for more than "
        "{down_seconds} s, critical in a job",
        "A drop that the job survives is no reason to wake somebody or to replace a node.",
    ),
    (
        "`symbol_error`",
        "above 120/h fatal, above 10/s degraded",
        "`IBPulseSymbolErrors`: above {symbol_errors} per 10^15 bits in {symbol_window}, and going on, warning",
        "A link with twice the rate may have twice the errors. At 400 Gb/s this is {symbols_400:.0f} an hour, so it "
        "warns earlier.",
    ),
    (
        "`local_ack_timeout_err`",
        "above 1/s, degraded",
        "`IBPulseAckTimeouts`: more than {ack_timeouts} in {ack_window}, warning",
        "A timeout lasts up to seconds: the connections of a dead path may never reach one per second.",
    ),
    (
        "`carrier_changes`",
        "more than 2 between two readings, degraded",
        "read on RoCE; `IBPulseLinkWentDown` counts drops",
        "`link_downed`, or the port's state, says the same of the RDMA port.",
    ),
    (
        "state of a port",
        "DOWN at one reading, fatal",
        "`IBPulseLinkDown`, see above",
        "A link that retrains is up again within seconds to a minute.",
    ),
)


def counters_markdown() -> str:
    """The text of `docs/counters.md`."""
    diagnostic = {layer: _count_series(layer, "diagnostic") for layer in (INFINIBAND, ETHERNET)}
    parts = [
        _TEXT.format(
            tries=TRIES,
            pause=FIRST_PAUSE_NS // SECOND_NS,
            longest=MAX_PAUSE_NS // SECOND_NS // 60,
            infiniband=diagnostic[INFINIBAND],
            ethernet=diagnostic[ETHERNET],
            every=_count_series(INFINIBAND, "all"),
            meanings=_meanings_table(),
            signals=_signals_table(),
            most=MAX_SIGNALS,
            own=MAX_FIRMWARE_READS,
        ),
        _table(fact for fact in FACTS if fact.layers),
        _ALL,
        _table(fact for fact in FACTS if not fact.layers),
        _BYTES,
        _sources_table(),
        _NVSENTINEL,
        _nvsentinel_table(),
    ]
    return "\n".join(parts)


def _sources_table() -> str:
    lines = [_source_row(row) for row in SOURCES]
    return "\n".join(["| driver | transmitted | received | bytes each | remark |", "|---|---|---|---|---|", *lines, ""])


# the drivers that have the files of rows for any driver
_HAVING = {
    "roce_only_bytes": "bnxt_re",
    "port_data": "mlx5, mlx4, rxe from Linux 7.2 on, and most others",
    "ip_octets": "irdma",
    "ionic_bytes": "ionic",
    "erdma_bytes": "erdma",
    "rxe_bytes": "rxe from Linux 7.2 on",
    "hw_bytes": "any other",
}


def _source_row(row: ByteCounterRow) -> str:
    drivers = ", ".join(sorted(row.drivers)) or _HAVING[row.name]
    ways = (" + ".join(f"`{row.folder}/{name}`" for name in names) for names in (row.transmit, row.receive))
    return f"| {drivers} | {' | '.join(ways)} | {row.scale} | {row.note} |"


def _nvsentinel_table() -> str:
    numbers = {number.name: number.value for alert in ALERTS for number in (alert.hold, *alert.numbers)}
    symbols_400 = 400e9 * 3600 / 1e15 * float(numbers["symbol_errors"])
    rows = [
        f"| {' | '.join((name, theirs, ours, why))} |".format(**numbers, symbols_400=symbols_400)
        for name, theirs, ours, why in NVSENTINEL
    ]
    return "\n".join(["| counter | NVSentinel | ibpulse | why |", "|---|---|---|---|", *rows, ""])


def _count_series(layer: str, counter_set: CounterSet) -> int:
    listed = {"counters": MLX5_COUNTERS, "hw_counters": MLX5_HW_COUNTERS, "net": ("carrier_changes",)}
    chosen = choose_counters(listed, layer, "mlx5_core", counter_set)
    return sum(bool(wanted.name) for wanted in chosen)


def _meanings_table() -> str:
    lines = [f"| {', '.join(f'`{stem}`' for stem in stems)} | {side} | {text} |" for stems, side, text in MEANINGS]
    return "\n".join(["| rising counter | on | meaning, and where to check |", "|---|---|---|", *lines, ""])


def _signals_table() -> str:
    lines = [
        f"| {meaning.sign}{' (peers)' if meaning.of_peers else ''} | `{name}` | {meaning.unit} |"
        for sign in SIGNS
        for name, meaning in SIGNALS.items()
        if meaning.sign == sign
    ]
    return "\n".join(["| sign | counter | unit |", "|---|---|---|", *lines, ""])


def _table(facts: Iterable[Counter]) -> str:
    files: dict[str, list[str]] = {}
    for fact in facts:
        files.setdefault(counter_name(fact.stem), []).append(_counter_file(fact))
    return "".join(f"- `{name}`: {'; '.join(found)}\n" for name, found in files.items())


def _counter_file(fact: Counter) -> str:
    layers = " and ".join("RoCE" if layer == ETHERNET else layer for layer in fact.layers if len(fact.layers) == 1)
    return f"`{fact.folder}/{fact.file}` ({fact.bits}{f', on {layers}' if layers else ''}: {fact.drivers})"


_TEXT = """\
# Error and congestion counters

These counters are read every `slow.interval` (5 s), separately from the samples, in one thread per device.

- **Totals** never decrease: of a counter that is lower than before, cleared or wrapped, the new value is added.
- **A failed read yields no value**, never 0. A file that fails {tries} times in a row is retried after {pause} s,
  then at increasing intervals, finally every {longest} minutes.
- **Names** are those of node_exporter, with `ibpulse_` instead of `node_infiniband_`.

## Why a rail stalls

A *requester* is the side that sends a request (for a write, the sender of the data); the *responder* receives it.

{meanings}
## Signals

Up to {most} of these counters per port are *signals*: they are read every `sampler.signals` (100 ms), and stand next to
the bytes in the ring, captures, recordings and the [API](api.md) (`signals=true`). A sign of *peers* says what limits
those who send to this port.

{signals}
- **Ports take turns**, after the bytes: from 100 ms on, no sample waits for more than one port's signals, so those of
  32 ports at 10 ms are read every 320 ms.
- **What it costs the device.** One message of netlink (or the files of `hw_counters/`), and at most {own} files of
  `counters/`. On mlx5 that is 4 to 6 firmware commands, under a third of what the bytes take at 100 ms.
- **A slow driver loses signals, not bytes.** A reading begins only if the last one would fit into what is left of the
  interval. One that takes over a quarter of the interval, or hangs, makes its port rest for up to 10 minutes.
- **Never counted is no calm.** `port_xmit_wait` is a signal only where it is known to count (mlx5, mlx4). Packets out
  of order are none, because adaptive routing reorders packets without loss.

## Traps

- **Counters stop when they are full.** A 4-, 8-, 16- or 32-bit counter in `counters/` stays at its highest value until
  the port is cleared (`perfquery -R`); ibpulse never clears it.
  `ibpulse_port_counter_saturated{{counter="link_downed"}}` is 1 then. Counters of Broadcom devices wrap instead.
- **The unit of `port_transmit_wait`** depends on the device; `perfquery -c` prints it. Recent NVIDIA devices reportedly
  count one per 8 bytes of port time. With `slow.xmit-wait-tick=8`, `ibpulse_port_transmit_stalled_ratio` is the share
  of time in which the port was stalled. On a busy fabric the counter is
  [full](congestion.md#what-signs-cannot-tell), and there is no ratio.
- **Scope.** On mlx5 the error counters in `counters/` and `port_transmit_wait` belong to the physical port: every
  function on it shows the same values, so do not add them up. `hw_counters/` and the byte counters belong to the
  function.
- **Caching.** On mlx5 only `rx_write_requests` refreshes the kernel's cache of `hw_counters/`, so that file is read
  first: the set then costs 2 to 4 firmware commands, in any other order up to 100.

## In PromQL

Ports with errors, full counters, notifications per second, loss per gigabyte sent, and the share of stalled time (for a
unit of 8 bytes):

```promql
increase(ibpulse_symbol_error_total[1h]) > 0 or increase(ibpulse_link_downed_total[1h]) > 0

ibpulse_port_counter_saturated

sum by (instance) (rate(ibpulse_rp_cnp_packets_handled_total[5m]))

rate(ibpulse_packet_sequence_errors_total[5m]) / on (instance, device, port)
  (rate(ibpulse_port_transmit_bytes_total[5m]) / 1e9)

rate(ibpulse_port_transmit_wait_total[5m]) * 8 / on (instance, device, port) ibpulse_port_rate_bytes_per_second

max_over_time(ibpulse_port_transmit_stalled_ratio[1h])
```

The last but one is wrong while `ibpulse_port_counter_saturated{{counter="port_xmit_wait"}}` exists.

## Which counters are read

`slow.counters=diagnostic` (the default) reads the counters that explain the traffic. On an InfiniBand port of mlx5,
`diagnostic` is {infiniband} series, `all` is {every}; on a RoCE port (any that is not InfiniBand), `diagnostic` is
{ethernet}. `none` reads nothing.
"""

_BYTES = """\
## Which files count bytes

The samples come from the first row of this table that fits the driver of the port and whose files can all be read.
Files whose names speak of bytes, but that are in no row, are not sampled; `ibpulse doctor` names them.

- **Files** of `counters/` are computed by the device at every read.
- **Netlink** for rows in `hw_counters/`, whose files the kernel caches: samples of 10 ms would show 0, 2x, 0, 2x.
  `RDMA_NLDEV_CMD_STAT_GET` asks the device for all of them, for any user: one message per port and sample, both
  directions of the same instant.

Where netlink is refused, such a port is sampled from its files every 50 ms by default, and doctor says why: a sandbox
or a service that does not allow `AF_NETLINK` sockets, devices of another network namespace (exclusive mode), or
counters that do not fit into one reply (hfi1). Broadcom's `tx_bytes` change once a second either way, and stay with the
files.

**What it costs the device.** A fresh value is one or more commands of its firmware. A port whose readings take long is
sampled less often; a node with more than 16 such ports asks each of them less often from the start, every 20 ms for the
32 devices of the largest EFA instances. `ports.sources=netlink=rdmap*` asks every `sampler.interval` all the same,
`ports.sources=sysfs=rdmap*` never asks.

The names were compared with the drivers of Linux 6.12, 6.18 and 7.3, AMD Pensando's firmware, and Alibaba's erdma. hns,
cxgb4 and rxe before Linux 7.2 count packets only; siw, qedr, usnic and vmw_pvrdma have no counters that can be read.
"""
_NVSENTINEL = """\
## Thresholds of NVSentinel

NVIDIA's NVSentinel watches the same counters every second and asks for the replacement of a node after a *fatal* event,
or for support after three *degraded* ones in an hour (documentation of November 2026). Without an alert of ibpulse:
`rnr_nak_retry_err` (any, fatal), `excessive_buffer_overrun_errors` and
`local_link_integrity_errors` (any, fatal; read with `all`), `link_error_recovery` (5/min), `port_rcv_errors` (10/s),
`port_xmit_discards` (100/s), `roce_slow_restart` (10/s), and those of EFA.
"""
