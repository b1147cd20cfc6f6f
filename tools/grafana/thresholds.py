"""The numbers in the rules, each with the reason for its value. It must not know the rules that use them.

A duration is written as Prometheus writes it. Whoever wants another number writes the rules anew with it
(`python -m tools.grafana rules --set NAME=VALUE`) instead of editing them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ibpulse.errors import ConfigError

_DURATION = re.compile(r"[0-9]+(ms|s|m|h|d)")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_PLACE = re.compile(r"<([a-z_]+)>")


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number of the rules: a duration such as `5m`, or a plain number; `reason` says why this one."""

    name: str
    value: str
    reason: str


TABLE = (
    Threshold(
        "jobs",
        ".*ibpulse.*",
        "The job label is `ibpulse` in plain Prometheus and `namespace/ibpulse` from a PodMonitor; both are found.",
    ),
    Threshold(
        "runbooks", "docs/runbooks", "Where the runbooks are; put the address here under which you publish them."
    ),
    Threshold("grafana", "/", "Where Grafana is; as it stands the links work from inside Grafana."),
    Threshold("moe_window", "10m", "Ten minutes hold hundreds of steps: a burst of one phase cannot fill them."),
    Threshold(
        "moe_share",
        "0.8",
        "The state already has a hold time of its own; four fifths of the window leave room for checkpoints.",
    ),
    Threshold("moe_for", "5m", "Long enough that a capture and a look at the live page find it still there."),
    Threshold("saturated_window", "15m", "A training step, its evaluation and its checkpoint fit in a quarter hour."),
    Threshold(
        "saturated_share", "0.9", "A link that is at its median limit nine tenths of the time has no room left to grow."
    ),
    Threshold("saturated_for", "5m", "The window has already waited; this only rides over one late scrape."),
    Threshold("rail_idle_for", "5m", "A job that starts reaches all rails within a minute or two."),
    Threshold("rail_slow_for", "10m", "The exporter compares whole seconds; ten minutes outlast a noisy neighbour."),
    Threshold("rail_missing_memory", "1h", "How long the number of rails a node had is remembered."),
    Threshold("rail_missing_for", "2m", "A driver reload brings a device back in well under two minutes."),
    Threshold("port_down_for", "2m", "A link that retrains is up again within seconds to a minute."),
    Threshold("flap_window", "15m", "Flaps closer than this belong to one fault."),
    Threshold(
        "flap_changes",
        "4",
        "Up and down are two changes; a planned restart makes two, a driver reload can make four.",
    ),
    Threshold("reset_window", "15m", "One reset is somebody clearing counters; what matters is repetition."),
    Threshold("reset_count", "2", "Two resets of one port in the window can be a driver reload and a second look."),
    Threshold("step_score", "0.4", "Below this score the exporter itself shows no period."),
    Threshold("step_recent", "10m", "The median of ten minutes ignores single wrong windows."),
    Threshold("step_memory", "1h", "What the step is compared with."),
    Threshold("step_slower", "1.1", "Ten per cent; the period itself is good to a per cent or two."),
    Threshold(
        "step_other_job", "2", "Twice as long is not a slower step but another job, or every second step missed."
    ),
    Threshold("step_for", "5m", "One evaluation phase may lengthen a few steps."),
    Threshold("stall_memory", "30m", "Regular steps within this time make silence remarkable; then it is old news."),
    Threshold("stall_steps", "10", "Evaluations with a clear period within that time: a job, not a test."),
    Threshold(
        "stall_for",
        "3m",
        "NCCL's watchdog waits ten minutes by default: this says it earlier, after a checkpoint's time.",
    ),
    Threshold("degraded_factor", "2", "Twice the sampling interval is beyond what jitter or a quiet minute produce."),
    Threshold("degraded_for", "10m", "The resolution is a quartile of a minute; ten of them agree."),
    Threshold("lengthened_for", "15m", "The daemon shortens the interval again by itself when the device recovers."),
    Threshold("read_errors_window", "10m", "A device that is reset fails for seconds only."),
    Threshold("read_errors_ratio", "0.01", "One read in a hundred: fewer are holes that no statistic notices."),
    Threshold("read_errors_for", "10m", "A firmware reset is over by then."),
    Threshold("missed_window", "10m", "Single late wake-ups are normal on a busy node."),
    Threshold(
        "missed_ratio", "0.01", "One tick in a hundred: below it, statistics do not change in their third digit."
    ),
    Threshold("missed_for", "10m", "A node that boots, or a build that runs, is over by then."),
    Threshold("heartbeat_age", "10", "Seconds. The supervisor restarts a silent sampler within three."),
    Threshold("sampler_for", "2m", "A daemon that restarts needs seconds."),
    Threshold("exporter_for", "5m", "A rolling update restarts a node's pod within a minute or two."),
    Threshold(
        "throttled_rate", "0.1", "Throttled periods per second; of ten periods in a second that is one in a hundred."
    ),
    Threshold("throttled_for", "10m", "The first minutes of a process cost more CPU than all later ones."),
    Threshold("quarantine_for", "5m", "A device that hung once is let back after ten steady seconds."),
    Threshold("recorder_window", "15m", "One alert per failing capture, not one per scrape."),
    Threshold("at_once", "0s", "The expression itself looks back over a window."),
    Threshold(
        "pcie_ratio", "0.99", "Speeds and widths are whole steps of a factor of two: any loss is far below this."
    ),
    Threshold("pcie_for", "15m", "Links change speed to save power; what stays for a quarter hour is a fault."),
)


def resolve(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every number by name, those of `overrides` in place of the table's.

    Raises:
        ConfigError: a name is unknown, or a value is of another kind than the table's.
    """
    values = {threshold.name: threshold.value for threshold in TABLE}
    faults = []
    for name, value in (overrides or {}).items():
        if name not in values:
            faults.append(f"--set {name}={value}: {name} is unknown; choose one of {', '.join(values)}")
        elif _kind(value) != _kind(values[name]):
            faults.append(f"--set {name}={value}: {value!r} is no {_kind(values[name])}; write it like {values[name]}")
    if faults:
        raise ConfigError(faults)
    return values | dict(overrides or {})


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with the number in each place that is written `<name>`."""
    return _PLACE.sub(lambda match: values[match[1]], text)


def places(text: str) -> frozenset[str]:
    """The names of the numbers that the text asks for."""
    return frozenset(_PLACE.findall(text))


def _kind(value: str) -> str:
    if _DURATION.fullmatch(value):
        return "duration"
    return "number" if _NUMBER.fullmatch(value) else "pattern"
