"""Every setting, declared once: name, kind of value, default and help sentence; the table of rows follows.

A field `interval` of the group `sampler` is the setting `sampler.interval`; `_` in a field stands for `-`. Defaults
pass the same checks as a given value. Help texts, documents, schema and checks come from these declarations.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_type_hints

from ibpulse.base.text import show
from ibpulse.base.units import GRID_NS, SECOND_NS, format_duration
from ibpulse.base.values import (
    OPTIONAL_PATH,
    PATH,
    RATE,
    RATIO,
    SIZE,
    TRUTH,
    URLS,
    Kind,
    choice,
    duration,
    labels,
    lists_by_word,
    many,
    matching,
    one,
    optional,
    seconds,
    some_of,
    whole,
    word_or_path,
)
from ibpulse.core import defaults
from ibpulse.core.model import BYTE_WAYS, ROLES

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "IBPULSE_"
_LISTEN_ADDRESS = re.compile(r"(?:\[([^\[\]\s]+)\]|([^\[\]:\s]*)):([0-9]{1,5})")
MIN_SIGNALS_NS = 10_000_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name such as `sampler.interval`, kind of value, default as text, help sentence, and field.

    `shown` describes a default that is computed at startup or has no text.
    """

    name: str
    kind: Kind[Any]
    default: str
    sentence: str
    shown: str = ""
    field: str = ""

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.name.upper().replace(".", "__").replace("-", "_")

    @property
    def default_text(self) -> str:
        """The default as shown in help and docs."""
        return self.shown or self.default


def setting(kind: Kind[T], default: T | str, sentence: str, *, shown: str = "", name: str = "") -> T:
    """Declare a setting: its kind, its default as text or value, its help sentence.

    `name` is the last part of the setting's name if it differs from the field's.
    """
    text = default if isinstance(default, str) else kind.text(default)
    declared: Any = field(metadata={"setting": Setting(name, kind, text, sentence, shown)})
    return declared  # type: ignore[no-any-return]


def declarations(group: Any, prefix: str = "") -> list[Setting]:
    """The settings of a group, given as class or instance; `prefix` stands before the last part of their names."""
    found = []
    for each in fields(group):
        declared: Setting = each.metadata["setting"]
        name = declared.name or each.name.replace("_", "-")
        found.append(replace(declared, name=prefix + name, field=each.name))
    return found


def written_values(group: Any) -> dict[str, Any]:
    """The values of a group by the last part of the name, as texts and lists of texts."""
    return {each.name: each.kind.write(getattr(group, each.field)) for each in declarations(group)}


class ListenAddress(NamedTuple):
    """The address to listen on; an empty host means every address of the node, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _divides_second(period_ns: int) -> None:
    if period_ns not in GRID_NS:
        below = max((one for one in GRID_NS[:-1] if one < period_ns), default=GRID_NS[0])
        above = GRID_NS[GRID_NS.index(below) + 1]
        nearest = f"{format_duration(below)} and {format_duration(above)}"
        raise ValueError(f"{format_duration(period_ns)} does not divide one second; the nearest that do are {nearest}")


def _none_or_long(period_ns: int) -> None:
    if 0 < period_ns < MIN_SIGNALS_NS:
        raise ValueError(f"{format_duration(period_ns)} is too short; use 10ms or more, or 0s for no readings")


def _listen_address(text: str) -> ListenAddress:
    match = _LISTEN_ADDRESS.fullmatch(text)
    if not match:
        raise ValueError(f"{show(text)} is not an address; write it like :10055, 127.0.0.1:10055 or [::1]:10055")
    if int(match[3]) > 65535:
        raise ValueError(f"port {match[3]} in {text!r} is out of range; use 1 to 65535, or 0 for any free port")
    host = match[1] or match[2] or ""
    # as in other programs, [::] is IPv4 too
    return ListenAddress("" if _is_every_ipv6(host) else host, int(match[3]))


def _is_every_ipv6(host: str) -> bool:
    try:
        return ipaddress.IPv6Address(host).is_unspecified
    except ValueError:
        return False


def _source(text: str) -> str:
    # its form is checked by the command, because reading sources takes imports that no daemon needs
    if not text.isprintable() or len(text) > 1024:
        raise ValueError(f"{show(text)} is not a source of nodes; write it like dns+NAME:PORT, nodes.json or a URL")
    return text


INTERVAL = duration("1ms", "1s", _divides_second)
SIGNAL_INTERVAL = duration("0s", "10s", _none_or_long)
CPU = optional(whole(0, 8191, "CPU"), "for no pinning")
RAILS = optional(whole(0, 256), "to count them")
TICK_BYTES = optional(whole(1, 4096, "BYTES"), "if unknown")
ADDRESS = one("ADDRESS", _listen_address)
_PORT = matching(
    "PORT", r"[^\s/:,]+(?::[^\s/:,]+)?", "a port", "write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*"
)
PORTS = many(_PORT)
ROLE_PORTS = lists_by_word("ROLE", _PORT, *ROLES)
PORT_SOURCES = lists_by_word("SOURCE", _PORT, *BYTE_WAYS)
NODES = many(
    matching(
        "NAME",
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}",
        "a node name",
        "write it like gpu-node-7 or gpu-node-7.example.org",
    )
)
SOURCES = many(one("SOURCE", _source))
HOSTS = many(
    matching(
        "HOST",
        r"\*|[A-Za-z0-9_][A-Za-z0-9._-]{0,252}",
        "a host name",
        "write it without a port, like gpu-node-7.example.org, or *",
    )
)


@dataclass(frozen=True, kw_only=True)
class PathSettings:
    """Location of the kernel's files."""

    sysfs: Path = setting(PATH, "/sys", "Root of the sysfs tree to read.")


@dataclass(frozen=True, kw_only=True)
class SamplerSettings:
    """Sampling of the counters."""

    interval: int = setting(
        INTERVAL,
        defaults.SAMPLING_INTERVAL_NS,
        "Time between two samples, 1ms to 1s; whole milliseconds that divide one second.",
    )
    signals: int = setting(
        SIGNAL_INTERVAL,
        defaults.SIGNAL_INTERVAL_NS,
        "Shortest time between two readings of the congestion counters of a port, 10ms to 10s; 0s reads none. From "
        "100ms on, no sample waits for more than one port's; see docs/counters.md for the cost.",
    )
    history: int = setting(
        duration("10s", "1h"),
        defaults.HISTORY_NS,
        "Span of raw samples kept, 10s to 1h. Rolling windows of 1m and 5m need that much.",
    )
    scheduler: Literal["other", "fifo"] = setting(
        choice("other", "fifo"),
        "other",
        "Scheduling policy of the sampler process; fifo needs CAP_SYS_NICE and falls back to other without it.",
    )
    cpu: int | None = setting(CPU, "", "CPU to pin the sampler process to.", shown="none")


@dataclass(frozen=True, kw_only=True)
class RingSettings:
    """Location of the raw samples."""

    dir: Path = setting(
        PATH,
        "",
        "Directory of the ring file; preferably in memory (tmpfs). If others can write to it, ibpulse-UID below it.",
        shown="/dev/shm/ibpulse if /dev/shm is writable, else $RUNTIME_DIRECTORY, else $TMPDIR/ibpulse",
    )


@dataclass(frozen=True, kw_only=True)
class PortSettings:
    """Ports to read, and their roles: a port for compute is a rail.

    A pattern names a device or a port: mlx5_0, mlx5_0:1, mlx5_*.
    """

    include: tuple[str, ...] = setting(PORTS, "", "Ports to read.", shown="all")
    exclude: tuple[str, ...] = setting(
        PORTS, "", "Ports never to open. Takes precedence over ports.include.", shown="none"
    )
    roles: dict[str, tuple[str, ...]] = setting(
        ROLE_PORTS,
        "",
        "Ports by role (compute, storage, management or unknown), such as storage=mlx5_1,mlx5_7; see docs/topology.md "
        "for the roles of other ports.",
        shown="chosen automatically",
    )
    sources: dict[str, tuple[str, ...]] = setting(
        PORT_SOURCES,
        "",
        "How counters in hw_counters are read, such as sysfs=rdmap*: by netlink, every sampler.interval on nodes "
        "with many devices too, or from sysfs, less often; see docs/counters.md.",
        shown="netlink where the kernel answers, less often on nodes with over 16 such ports",
    )
    expected_rails: int | None = setting(
        RAILS, "", "Number of rails this node should have, 0 to 256.", shown="the most rails ibpulse has evidence of"
    )


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """Statistics computed from the samples."""

    active_threshold: int = setting(
        RATE, defaults.ACTIVE_BYTES_PER_SECOND, "Rate above which a sample counts as active."
    )
    traffic_window: int = setting(
        seconds("10s", "10m"),
        defaults.TRAFFIC_WINDOW_NS,
        "Window used to find the step period and the signature, 10s to 10m in whole seconds. "
        "Steps up to a quarter of it can be found. The default is limited to sampler.history.",
    )
    moe_saturation_hold: int = setting(
        duration("1s", "1h"),
        defaults.MOE_SATURATION_HOLD_NS,
        "Time for which traffic must be moe_like, with the duty cycle and peaks below, to be sustained; 1s to 1h.",
    )
    moe_saturation_duty: float = setting(
        RATIO, defaults.MOE_SATURATION_DUTY, "Minimum duty cycle of sustained MoE saturation."
    )
    moe_saturation_peak: float = setting(
        RATIO,
        defaults.MOE_SATURATION_PEAK,
        "Minimum peak utilisation of sustained MoE saturation, of the rails that carry traffic.",
    )


@dataclass(frozen=True, kw_only=True)
class SlowSettings:
    """Data read less often than the byte counters: port state, rate, error counters, devices that come and go."""

    interval: int = setting(
        duration("1s", "10m"), defaults.SCAN_INTERVAL_NS, "How often port state and devices are re-read, 1s to 10m."
    )
    counters: Literal["diagnostic", "all", "none"] = setting(
        choice("diagnostic", "all", "none"),
        "diagnostic",
        "Error and congestion counters to read every slow.interval: diagnostic (those that explain traffic), all "
        "or none.",
    )
    xmit_wait_tick: int | None = setting(
        TICK_BYTES,
        "",
        "Bytes a port could have sent per count of port_xmit_wait, 1 to 4096; 8 on recent NVIDIA devices.",
        shown="unset; stalled time is not reported",
    )


@dataclass(frozen=True, kw_only=True)
class TopologySettings:
    """PCIe placement of devices, for virtual machines that hide it."""

    file: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "YAML file with the NUMA node, nearest GPUs and PCIe link of devices; see docs/topology.md for its format.",
        shown="none",
    )


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Sources for the jobs that run on the node and the GPUs that they hold; see docs/jobs.md."""

    cgroup: Literal["auto", "off"] | Path = setting(
        word_or_path("auto", "off"),
        "auto",
        "Where to search for the cgroups of Slurm's jobs and of pods: auto is fs/cgroup under path.sysfs.",
    )
    mapping_dir: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "Directory of files named by GPU index that hold job ids, as a Slurm prolog writes them for DCGM's exporter.",
        shown="none",
    )
    owners_dir: Path | None = setting(
        OPTIONAL_PATH,
        "/run/ibpulse-jobs",
        "Directory of JSON documents, one per job; it and they have to belong to root or to the user of ibpulse.",
    )
    names: bool = setting(
        TRUTH,
        "false",
        "Show the names and namespaces of jobs too. Without a password, everyone who reaches the port can read them.",
    )


@dataclass(frozen=True, kw_only=True)
class WebSettings:
    """The web server."""

    listen_address: ListenAddress = setting(
        ADDRESS,
        ":10055",
        "Address to listen on: :10055 (every address), 127.0.0.1:10055 or [::1]:10055; port 0 selects any free port.",
        shown=":10055; for `ibpulse gateway` :10056",
    )
    config_file: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "YAML file with TLS, basic authentication and headers, in the format of Prometheus exporters; see "
        "docs/security.md.",
        shown="none",
        name="config.file",
    )
    hosts: tuple[str, ...] = setting(
        HOSTS,
        "",
        "Host names that clients may ask for, in addition to localhost and addresses, or * for any. A server that "
        "listens on a loopback address serves only these, localhost and loopback addresses; see docs/security.md.",
        shown="any, unless listening on a loopback address",
    )


@dataclass(frozen=True, kw_only=True)
class CaptureSettings:
    """The flight recorder: what triggers a capture of the samples, and where captures are stored."""

    dir: Path = setting(
        PATH,
        "/var/lib/ibpulse/captures",
        "Directory of the captures, on a disk: a capture of 8 ports takes 1 to 2 MB. If others can write to it, "
        "ibpulse-UID below it.",
        shown="$STATE_DIRECTORY/captures, else /var/lib/ibpulse/captures if writable, else $TMPDIR/ibpulse/captures",
    )
    before: int = setting(
        duration("1s", "1h"),
        defaults.CAPTURE_BEFORE_NS,
        "Time before its trigger that a capture includes, 1s to 1h; with capture.after at most "
        "sampler.history. The default is limited to that.",
    )
    after: int = setting(
        duration("0s", "10m"),
        defaults.CAPTURE_AFTER_NS,
        "Time after its trigger that a capture includes, 0s to 10m. "
        "The default is at most a quarter of sampler.history.",
    )
    rules: tuple[str, ...] = setting(
        some_of("RULE", *defaults.CAPTURE_RULES),
        defaults.CAPTURE_RULES,
        "Local rules that trigger captures, or none; see docs/captures.md.",
    )
    max_bytes: int = setting(
        SIZE,
        defaults.MAX_CAPTURE_BYTES,
        "Maximum total size of captures; the oldest are deleted to make room for a new one.",
    )
    min_free: int = setting(
        SIZE,
        defaults.MIN_FREE_BYTES,
        "Free disk space to preserve: the oldest captures are removed first, then no new one is taken.",
    )
    node: tuple[str, ...] = setting(
        NODES,
        "",
        "Names of this node in the alert labels instance, node, nodename and hostname; its own addresses always "
        "match. The first is recorded as the host name in captures.",
        shown="the host name",
    )
    allow_unauthenticated: bool = setting(
        TRUTH,
        "false",
        "Allow clients without a password to take and delete captures; otherwise only users of web.config.file.",
    )


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The nodes of `ibpulse gateway`; see docs/gateway.md."""

    sources: tuple[str, ...] = setting(
        SOURCES,
        "",
        "Where nodes are listed: dns+NAME:PORT, dnssrv+NAME, a file of Prometheus's file_sd (FILE.json, FILE.yml), or "
        "the URL of HTTP service discovery; of nodes with one name, that of the first source counts.",
        shown="none",
    )
    config_file: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "YAML file with the password and TLS for asking these nodes, in the format of Prometheus for HTTP clients.",
        shown="none",
        name="config.file",
    )


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """The alerts of `ibpulse gateway` about silent jobs; see docs/gateway.md."""

    alertmanager_url: tuple[str, ...] = setting(
        URLS,
        "",
        "Alertmanagers to push alerts to, each with its path prefix, like http://alertmanager:9093; all of them get "
        "every alert.",
        shown="none",
    )
    alertmanager_config_file: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "YAML file with the password and TLS for these Alertmanagers, like nodes.config.file.",
        shown="none",
        name="alertmanager-config.file",
    )
    alertmanager_labels: dict[str, str] = setting(
        labels("alertname", "job_id"),
        "",
        "Labels of every pushed alert, such as cluster=a: those that Prometheus adds to its alerts, so that "
        "Alertmanager merges both.",
        shown="none",
    )
    webhook_url: tuple[str, ...] = setting(
        URLS, "", "Other servers that get the same requests as the Alertmanagers.", shown="none"
    )
    webhook_config_file: Path | None = setting(
        OPTIONAL_PATH,
        "",
        "YAML file with the password and TLS for these servers, like nodes.config.file.",
        shown="none",
        name="webhook-config.file",
    )
    unexplained_after: int = setting(
        duration("1s", "1h"),
        60 * SECOND_NS,
        "Silence without a known reason that cut off traffic, after which an alert is pushed, 1s to 1h; three times as "
        "long if it began like a pause, ten times before there are steps, later after pauses of over half of that.",
    )


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """Logging to standard error."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        choice("debug", "info", "warning", "error", warn="warning"),
        "info",
        "Minimum severity of log messages.",
    )
    format: Literal["text", "json", "logfmt"] = setting(
        choice("text", "json", "logfmt"),
        "text",
        "Log format: text for people, or one JSON object or logfmt line per message.",
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
    jobs: JobSettings
    web: WebSettings
    capture: CaptureSettings
    nodes: NodeSettings
    gateway: GatewaySettings
    log: LogSettings

    def written(self) -> dict[str, dict[str, Any]]:
        """The settings by group and name, as texts and lists of texts that every source accepts."""
        return {group.name: written_values(getattr(self, group.name)) for group in fields(self)}


EVERY_SETTING = "`ibpulse serve --help` lists every setting"
"""The way out for an unknown name that resembles none."""

GROUP_TYPES: dict[str, Any] = get_type_hints(Settings)
"""The class of each group of settings, by the group's name."""

GROUPS: dict[str, str] = {name: " ".join(kind.__doc__.split()) for name, kind in GROUP_TYPES.items()}
"""The description of each group, by its name."""

CONFIG_FILE = Setting(
    "config.file", OPTIONAL_PATH, "", "YAML file with settings; overridden by environment variables and flags.", "none"
)

ROWS = tuple(row for group, kind in GROUP_TYPES.items() for row in declarations(kind, f"{group}."))


def describe() -> tuple[Setting, ...]:
    """All settings in the order of the table, `config.file` first."""
    return (CONFIG_FILE, *ROWS)


def row(name: str) -> Setting:
    """The row of one setting."""
    return next(row for row in describe() if row.name == name)
