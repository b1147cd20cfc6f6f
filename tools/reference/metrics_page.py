"""`docs/metrics.md`, written from the table of metrics and from what the client library tells of the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric as LibraryFamily

from ibpulse.exposition import process_registry
from ibpulse.metrics.counters import DIAGNOSTIC_COUNTERS, STATE_ROWS
from ibpulse.metrics.row import Metric
from ibpulse.metrics.table import TABLE

_PREFACE = """\
# Metrics

This page is written by a program from the table of metrics. Each section has the order of `/metrics`.

Transmit and receive are separate names. Units are base units: bytes, seconds, ratios from 0 to 1. A *good sample* of
a port has both counters read at its beginning and its end, and no reset in between. Everything else is missing data:
it is excluded, and never counted as zero.

**Windows** (`window` label) end at the newest aggregated sample, `ibpulse_aggregated_until_timestamp_seconds`, and
cover exactly that many whole seconds. Numbers are aggregated once a second, about 0.25 s after the end of the second
(later by one sampling interval of the slowest port), so a scrape sees a window that ended 0.25 s to 1.3 s ago.
Scrapes never change a value. If the window is at least as long as the scrape interval, `max_over_time` of a peak
misses nothing.

**Unknown values are absent**, never NaN and never 0 (except for the step period, where NaN means that none was
found): a window without a good sample has no peak, a window with fewer than two active samples has no coefficient of
variation, a port with an unknown data rate has no utilisation, and a port whose counters were never read has no
totals. If the counters of a port were seen to stay constant over several samples, the port has no peak, no duty cycle
and no coefficient of variation, and neither has the node if the port is a rail. A port that left the fabric has no
series; its totals continue when it comes back.

**Counters start at 0 with the process**, except the error and congestion counters, which start at the value of the
port's own counter. Windows are filled from the history in the ring.

Mean utilisation, duty cycle and coefficient of variation over any span and any set of ports (sum each rate first):

```
mean = rate(ibpulse_port_transmit_utilization_seconds_total[5m]) / rate(ibpulse_port_observed_seconds_total[5m])
duty = rate(ibpulse_port_transmit_active_seconds_total[5m]) / rate(ibpulse_port_observed_seconds_total[5m])
a    = rate(ibpulse_port_transmit_active_seconds_total[5m])
m    = rate(ibpulse_port_transmit_active_utilization_seconds_total[5m]) / a
cv   = sqrt(clamp_min(rate(ibpulse_port_transmit_active_utilization_squared_seconds_total[5m]) / a - m^2, 0)) / m
```
"""

_SECTIONS = (
    ("Ports", ("ibpulse_port_",)),
    ("Node: the sum over its rails", ("ibpulse_node_",)),
    ("Devices", ("ibpulse_device_",)),
    ("Sampler", ("ibpulse_sampler_", "ibpulse_cgroup_")),
    ("Exporter", ("ibpulse_fabric_", "ibpulse_aggregat", "ibpulse_build_")),
    ("Flight recorder", ("ibpulse_capture",)),
    ("Web server", ("ibpulse_web_", "ibpulse_http_")),
)

_COUNTERS = (*DIAGNOSTIC_COUNTERS, *STATE_ROWS)
_COUNTERS_TEXT = """\
Read every `slow.interval` with `slow.counters=diagnostic`. Which of them a port has depends on its link layer and its
driver. The names are those of node_exporter with `ibpulse_` instead of `node_infiniband_`. [counters.md](counters.md)
lists files, widths and meanings, and the counters that `slow.counters=all` adds.

"""
_PROCESS_TEXT = "The Prometheus client library gives these of the main process.\n\n"
_HEAD = "| name | type | labels | unit | description |\n|---|---|---|---|---|\n"


def metrics_markdown() -> str:
    """The text of `docs/metrics.md`."""
    parts = [_PREFACE]
    for title, prefixes in _SECTIONS:
        rows = [metric for metric in TABLE if metric.name.startswith(prefixes) and metric not in _COUNTERS]
        parts += _section(title, map(_row, rows))
    parts += _section("Error and congestion counters", map(_row, _COUNTERS), _COUNTERS_TEXT)
    parts += _section("Process", map(_library_row, process_registry().collect()), _PROCESS_TEXT)
    parts += ["\n## Buckets\n\n", *_buckets()]
    return "".join(parts)


def _section(title: str, rows: Iterable[str], text: str = "") -> list[str]:
    return [f"\n## {title}\n\n{text}{_HEAD}", *rows]


def _row(metric: Metric) -> str:
    kind = "gauge" if metric.type == "info" else metric.type
    return _line(metric.name, kind, metric.labels, metric.unit, metric.help)


def _library_row(family: LibraryFamily) -> str:
    sample = family.samples[0]
    return _line(sample.name, family.type, sample.labels, family.unit, family.documentation)


def _line(name: str, kind: str, labels: Iterable[str], unit: str, text: str) -> str:
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {kind} | {shown} | {unit.replace('_', ' ')} | {text} |\n"


def _buckets() -> Iterator[str]:
    for buckets in dict.fromkeys(metric.buckets for metric in TABLE if metric.buckets):
        names = ", ".join(f"`{metric.name}`" for metric in TABLE if metric.buckets == buckets)
        yield f"- {names}: {', '.join(map(repr, buckets))}, +Inf\n"
