"""Every setting, declared once: name, kind of value, default and help sentence.

A field `interval` of the group `sampler` is the setting `sampler.interval`; `_` in a field stands for `-`. Defaults are
written as people write them and pass the same checks as a given value. The table of rows, help texts, documents, schema
and checks come from these declarations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ibpulse.config.setting_types import (
    ADDRESS,
    CPU,
    INTERVAL,
    NODES,
    OPTIONAL_PATH,
    PATH,
    PORTS,
    RATE,
    RATIO,
    SIZE,
    SWITCH,
    TICK_BYTES,
    TIMESCALES,
    WINDOWS,
    Kind,
    ListenAddress,
    choice,
    count,
    duration,
    seconds,
    some_of,
)
from ibpulse.defaults import ACTIVE_BYTES_PER_SECOND, CAPTURE_RULES
from ibpulse.units import format_rate

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is said of a setting besides its name; see `setting`."""

    kind: Kind[Any]
    default: str
    sentence: str
    shown: str
    name: str


def setting(kind: Kind[T], default: str, sentence: str, *, shown: str = "", name: str = "") -> T:
    """A setting: its kind, its default as text, its help sentence.

    `shown` stands for a default that is found only at the start, or that is no text. `name` is the last part of its
    name where that is not the field's.
    """
    declared: Any = field(metadata={"setting": Declaration(kind, default, sentence, shown, name)})
    return declared  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class PathSettings:
    """Where the kernel's files are."""

    sysfs: Path = setting(PATH, "/sys", "Root of the sysfs tree to read.")


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """How the counters are sampled."""

    interval: int = setting(
        INTERVAL, "10ms", "Time between two samples, 1ms to 1s; whole milliseconds that divide one second."
    )
    history: int = setting(
        duration("10s", "1h"), "5m", "Span of raw samples kept, 10s to 1h; at least the longest of analysis.windows."
    )
    scheduler: Literal["other", "fifo"] = setting(
        choice("other", "fifo"),
        "other",
        "Scheduling of the sampler process; fifo needs CAP_SYS_NICE, without it other is used.",
    )
    cpu: int | None = setting(CPU, "", "Processor to pin the sampler process to.", shown="none")


@dataclass(frozen=True, kw_only=True)
class RingSettings:
    """Where the raw samples are kept."""

    dir: Path = setting(
        PATH,
        "",
        "Directory of the ring file; best in memory (tmpfs).",
        shown="/dev/shm/ibpulse if /dev/shm is writable, else $RUNTIME_DIRECTORY, else $TMPDIR/ibpulse",
    )


@dataclass(frozen=True, kw_only=True)
class PortSettings:
    """Which ports are read, and which of them are rails.

    A pattern names a device or a port: mlx5_0, mlx5_0:1, mlx5_*.
    """

    include: tuple[str, ...] = setting(PORTS, "", "Ports to read.", shown="all")
    exclude: tuple[str, ...] = setting(
        PORTS, "", "Ports of which no file is ever opened; goes before ports.include.", shown="none"
    )
    rails: tuple[str, ...] = setting(
        PORTS, "", "Ports that carry the job's traffic.", shown="told apart by what the port is"
    )


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """What is computed from the samples."""

    active_threshold: int = setting(
        RATE, format_rate(round(ACTIVE_BYTES_PER_SECOND)), "Rate above which a sample counts as active."
    )
    windows: tuple[int, ...] = setting(
        WINDOWS, "10s,1m,5m", "Rolling windows of peak, duty cycle and burstiness, 1s to 1h in whole seconds."
    )
    timescales: tuple[int, ...] = setting(
        TIMESCALES,
        "10ms,50ms,100ms,1s",
        "Time scales of burstiness; multiples of sampler.interval that divide one second. "
        "Of the default, those that are no multiple are left out.",
    )
    traffic_window: int = setting(
        seconds("10s", "10m"),
        "1m",
        "What the step period and the signature are found in, 10s to 10m in whole seconds. "
        "Steps up to a quarter of it are found. The default is cut to sampler.history.",
    )
    saturation_level: float = setting(RATIO, "0.85", "Median utilisation from which a link or the node is saturated.")
    saturation_window: int = setting(
        seconds("5s", "10m"), "30s", "What that median is taken over, 5s to 10m in whole seconds."
    )
    moe_saturation_hold: int = setting(
        duration("1s", "1h"),
        "30s",
        "How long traffic must be moe_like, with the duty cycle and the peaks below, before that is a state; 1s to 1h.",
    )
    moe_saturation_duty: float = setting(RATIO, "0.85", "Least duty cycle of sustained MoE saturation.")
    moe_saturation_peak: float = setting(RATIO, "0.9", "Least peak utilisation of sustained MoE saturation.")


@dataclass(frozen=True, kw_only=True)
class SlowSettings:
    """What is read beside the samples: status, rate, new and vanished devices, error counters."""

    interval: int = setting(duration("1s", "10m"), "5s", "Time between two looks at status and devices, 1s to 10m.")
    counters: Literal["diagnostic", "all", "none"] = setting(
        choice("diagnostic", "all", "none"),
        "diagnostic",
        "Error and congestion counters to read at each look: those that explain the traffic, every one, or none.",
    )
    xmit_wait_tick: int | None = setting(
        TICK_BYTES,
        "",
        "Bytes that a port could have sent in one count of port_xmit_wait, 1 to 4096; 8 on recent NVIDIA devices.",
        shown="not known, so no stalled time",
    )


@dataclass(frozen=True, kw_only=True)
class TopologySettings:
    """Where devices are plugged in, for virtual machines that hide it."""

    file: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "YAML file that says of devices their NUMA node, nearest GPUs and PCIe link; docs/topology.md has its form.",
        shown="none",
    )


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    """How the results are served."""

    listen_address: ListenAddress = setting(
        ADDRESS,
        ":10055",
        "Address to listen on: :10055 (every address), 127.0.0.1:10055 or [::1]:10055; port 0 is any free one.",
    )
    config_file: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "YAML file with TLS, basic authentication and headers, as exporters of Prometheus read it; see security.md.",
        shown="none",
        name="config.file",
    )
    max_points: int = setting(
        count(1_000, 100_000_000),
        "200000",
        "Values in one window response (ports x 2 directions x bins), 1000 to 100000000.",
    )


@dataclass(frozen=True, kw_only=True)
class CaptureSettings:
    """The flight recorder: what freezes the samples around an instant to a file, and where the files go."""

    dir: Path = setting(
        PATH,
        "/var/lib/ibpulse/captures",
        "Directory of the captures, on a disk: a capture of 8 ports takes 1 to 2 MB.",
        shown="$STATE_DIRECTORY/captures, else /var/lib/ibpulse/captures if it can be written, else "
        "$TMPDIR/ibpulse/captures",
    )
    before: int = setting(
        duration("1s", "1h"),
        "60s",
        "What a capture holds of the time before its trigger, 1s to 1h; with capture.after at most "
        "sampler.history. The default is cut to that.",
    )
    after: int = setting(
        duration("0s", "10m"),
        "10s",
        "What a capture holds of the time after its trigger, 0s to 10m. "
        "The default is at most a quarter of sampler.history.",
    )
    rules: tuple[str, ...] = setting(
        some_of("RULE", *CAPTURE_RULES),
        ",".join(CAPTURE_RULES),
        "Local rules that take captures, or none; see captures.md.",
    )
    cooldown: int = setting(
        duration("1s", "30d"),
        "10m",
        "Time in which the same rule, or the same alert, takes no other capture, 1s to 30d.",
    )
    max_count: int = setting(
        count(1, 100_000), "100", "Captures that are kept, 1 to 100000; the oldest is removed for another."
    )
    max_bytes: int = setting(SIZE, "1GB", "Size of all captures together; the oldest are removed for a new one.")
    min_free: int = setting(
        SIZE, "500MB", "What captures leave free on the disk: the oldest are removed, then no new one is taken."
    )
    node: tuple[str, ...] = setting(
        NODES,
        "",
        "Names of this node in the labels of alerts: instance, node, nodename, hostname. "
        "Own addresses always count. Captures name the first as their host.",
        shown="the host name",
    )
    allow_unauthenticated: bool = setting(
        SWITCH,
        "false",
        "Whether everybody may take and delete captures; otherwise only users that web.config.file knows.",
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is logged, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        choice("debug", "info", "warning", "error", warn="warning"),
        "info",
        "Lowest severity that is logged.",
    )
    format: Literal["text", "json", "logfmt"] = setting(
        choice("text", "json", "logfmt"), "text", "Lines for people, or per line a JSON object or logfmt pairs."
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, checked."""

    path: PathSettings
    sampler: SamplerSettings
    ring: RingSettings
    ports: PortSettings
    analysis: AnalysisSettings
    slow: SlowSettings
    topology: TopologySettings
    web: WebSettings
    capture: CaptureSettings
    log: LogSettings

    def written(self) -> dict[str, dict[str, Any]]:
        """The settings by group and name, as texts and lists of texts that every source takes back."""
        return {group.name: _written(getattr(self, group.name)) for group in fields(self)}


def declarations(group: Any) -> dict[str, tuple[str, Declaration]]:
    """By the last part of each setting's name: its field and what is declared, of a group's class or value."""
    found = {one.name: one.metadata["setting"] for one in fields(group)}
    return {declared.name or name.replace("_", "-"): (name, declared) for name, declared in found.items()}


def _written(group: Any) -> dict[str, Any]:
    return {last: declared.kind.write(getattr(group, name)) for last, (name, declared) in declarations(group).items()}
