"""The table of settings: name, default, value and help sentence of each, in words. It must not read any source.

It drives the help texts and the documents, and the checked model takes its names and defaults from it. Defaults are
written as people write them and pass the same checks as a given value. No pydantic here: help texts must be quick.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PREFIX = "IBPULSE_"


@dataclass(frozen=True, slots=True)
class SettingName:
    """The name of a setting, as in `sampler.interval`, and what that is as a flag and as a variable."""

    name: str

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.name.partition(".")[0]

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return PREFIX + self.name.upper().replace(".", "__").replace("-", "_")


@dataclass(frozen=True, slots=True)
class SettingRow(SettingName):
    """One setting: its name, the word for its value, its default as text, a help sentence.

    `shown` stands for a default that is found only at the start, or that is no text.
    """

    metavar: str
    default: str
    sentence: str
    shown: str = ""

    @property
    def is_list(self) -> bool:
        """Whether the setting takes several values."""
        return self.metavar.endswith(",...")

    @property
    def default_text(self) -> str:
        """The default for people."""
        return self.shown or self.default


@dataclass(frozen=True, slots=True)
class DeprecatedSetting(SettingName):
    """A setting of version 0.1 that is still accepted everywhere, with any value and one warning.

    `instead` says what holds now. The value goes to the setting named `replacement`, where there is one; else it is
    ignored.
    """

    instead: str
    replacement: str = ""

    @property
    def warning(self) -> str:
        """The end of the warning, after the place where the setting was given."""
        what = f"is now {self.replacement}" if self.replacement else "was removed and is ignored"
        return f"{what}; {self.instead}"


GROUPS = {
    "path": "Where the kernel's files are.",
    "sampler": "How the counters are sampled.",
    "ring": "Where the raw samples are kept.",
    "ports": "Which ports are read, and which of them are rails. "
    "A pattern names a device or a port: mlx5_0, mlx5_0:1, mlx5_*.",
    "analysis": "What is computed from the samples.",
    "slow": "What is read beside the samples: status, rate, new and vanished devices, error counters.",
    "topology": "Where devices are plugged in, for virtual machines that hide it.",
    "web": "How the results are served.",
    "capture": "The flight recorder: what freezes the samples around an instant to a file, and where the files go.",
    "log": "What is logged, to standard error.",
}

CONFIG_FILE = SettingRow(
    "config.file", "PATH", "", "YAML file with settings; flags and environment go before it.", "none"
)

ROWS = (
    SettingRow("path.sysfs", "PATH", "/sys", "Root of the sysfs tree to read."),
    SettingRow(
        "sampler.interval",
        "DURATION",
        "10ms",
        "Time between two samples, 1ms to 1s; whole milliseconds that divide one second.",
    ),
    SettingRow(
        "sampler.history",
        "DURATION",
        "5m",
        "Span of raw samples kept, 10s to 1h; at least the longest of analysis.windows.",
    ),
    SettingRow(
        "sampler.scheduler",
        "other|fifo",
        "other",
        "Scheduling of the sampler process; fifo needs CAP_SYS_NICE, without it other is used.",
    ),
    SettingRow("sampler.cpu", "CPU", "", "Processor to pin the sampler process to.", "none"),
    SettingRow(
        "ring.dir",
        "PATH",
        "",
        "Directory of the ring file; best in memory (tmpfs).",
        "/dev/shm/ibpulse if /dev/shm is writable, else $RUNTIME_DIRECTORY, else $TMPDIR/ibpulse",
    ),
    SettingRow("ports.include", "PORT,...", "", "Ports to read.", "all"),
    SettingRow(
        "ports.exclude", "PORT,...", "", "Ports of which no file is ever opened; goes before ports.include.", "none"
    ),
    SettingRow("ports.rails", "PORT,...", "", "Ports that carry the job's traffic.", "told apart by what the port is"),
    SettingRow("analysis.active-threshold", "RATE", "0.1GB/s", "Rate above which a sample counts as active."),
    SettingRow(
        "analysis.windows",
        "DURATION,...",
        "10s,1m,5m",
        "Rolling windows of peak, duty cycle and burstiness, 1s to 1h in whole seconds.",
    ),
    SettingRow(
        "analysis.timescales",
        "DURATION,...",
        "10ms,50ms,100ms,1s",
        "Time scales of burstiness; multiples of sampler.interval that divide one second. "
        "Of the default, those that are no multiple are left out.",
    ),
    SettingRow(
        "analysis.traffic-window",
        "DURATION",
        "1m",
        "What the step period and the signature are found in, 10s to 10m in whole seconds. "
        "Steps up to a quarter of it are found. The default is cut to sampler.history.",
    ),
    SettingRow(
        "analysis.saturation-level", "RATIO", "0.85", "Median utilisation from which a link or the node is saturated."
    ),
    SettingRow(
        "analysis.saturation-window",
        "DURATION",
        "30s",
        "What that median is taken over, 5s to 10m in whole seconds.",
    ),
    SettingRow(
        "analysis.moe-saturation-hold",
        "DURATION",
        "30s",
        "How long traffic must be moe_like, with the duty cycle and the peaks below, before that is a state; 1s to 1h.",
    ),
    SettingRow("analysis.moe-saturation-duty", "RATIO", "0.85", "Least duty cycle of sustained MoE saturation."),
    SettingRow("analysis.moe-saturation-peak", "RATIO", "0.9", "Least peak utilisation of sustained MoE saturation."),
    SettingRow("slow.interval", "DURATION", "5s", "Time between two looks at status and devices, 1s to 10m."),
    SettingRow(
        "slow.counters",
        "diagnostic|all|none",
        "diagnostic",
        "Error and congestion counters to read at each look: those that explain the traffic, every one, or none.",
    ),
    SettingRow(
        "slow.xmit-wait-tick",
        "BYTES",
        "",
        "Bytes that a port could have sent in one count of port_xmit_wait, 1 to 4096; 8 on recent NVIDIA devices.",
        "not known, so no stalled time",
    ),
    SettingRow(
        "topology.file",
        "PATH",
        "",
        "YAML file that says of devices their NUMA node, nearest GPUs and PCIe link; docs/topology.md has its form.",
        "none",
    ),
    SettingRow(
        "web.listen-address",
        "ADDRESS",
        ":10055",
        "Address to listen on: :10055 (every address), 127.0.0.1:10055 or [::1]:10055; port 0 is any free one.",
    ),
    SettingRow(
        "web.config.file",
        "PATH",
        "",
        "YAML file with TLS, basic authentication and headers, as exporters of Prometheus read it; see security.md.",
        "none",
    ),
    SettingRow(
        "web.max-points",
        "COUNT",
        "200000",
        "Values in one window response (ports x 2 directions x bins), 1000 to 100000000.",
    ),
    SettingRow(
        "capture.dir",
        "PATH",
        "/var/lib/ibpulse/captures",
        "Directory of the captures, on a disk: a capture of 8 ports takes 1 to 2 MB.",
        "$STATE_DIRECTORY/captures, else /var/lib/ibpulse/captures if it can be written, else $TMPDIR/ibpulse/captures",
    ),
    SettingRow(
        "capture.before",
        "DURATION",
        "60s",
        "What a capture holds of the time before its trigger, 1s to 1h; with capture.after at most sampler.history. "
        "The default is cut to that.",
    ),
    SettingRow(
        "capture.after",
        "DURATION",
        "10s",
        "What a capture holds of the time after its trigger, 0s to 10m. The default is at most a quarter of "
        "sampler.history.",
    ),
    SettingRow(
        "capture.rules",
        "RULE,...",
        "traffic-stalled,rail-lost,moe-saturation,step-slower",
        "Local rules that take captures, or none; see captures.md.",
    ),
    SettingRow(
        "capture.cooldown",
        "DURATION",
        "10m",
        "Time in which the same rule, or the same alert, takes no other capture, 1s to 30d.",
    ),
    SettingRow(
        "capture.max-count", "COUNT", "100", "Captures that are kept, 1 to 100000; the oldest is removed for another."
    ),
    SettingRow(
        "capture.max-bytes", "SIZE", "1GB", "Size of all captures together; the oldest are removed for a new one."
    ),
    SettingRow(
        "capture.min-free",
        "SIZE",
        "500MB",
        "What captures leave free on the disk: the oldest are removed, then no new one is taken.",
    ),
    SettingRow(
        "capture.node",
        "NAME,...",
        "",
        "Names of this node in the labels of alerts: instance, node, nodename, hostname. Own addresses always count. "
        "Captures name the first as their host.",
        "the host name",
    ),
    SettingRow(
        "capture.allow-unauthenticated",
        "true|false",
        "false",
        "Whether everybody may take and delete captures; otherwise only users that web.config.file knows.",
    ),
    SettingRow("log.level", "debug|info|warning|error", "info", "Least severity that is logged."),
    SettingRow("log.format", "text|json", "text", "Lines for people, or one JSON object a line."),
)


DEPRECATED = (
    DeprecatedSetting("analysis.burst-low", "a burst ends at analysis.active-threshold"),
    DeprecatedSetting("analysis.signature-dense", "the reference of dense_like is fixed"),
    DeprecatedSetting("analysis.signature-moe", "the reference of moe_like is fixed"),
    DeprecatedSetting("analysis.signature-tolerance", "the tolerances of the workload signature are fixed"),
    DeprecatedSetting(
        "analysis.signature-confidence", "the least confidence of the workload signature is fixed at 0.3"
    ),
    DeprecatedSetting("web.max-wide-requests", "the limit of wide window requests is fixed at 2"),
    DeprecatedSetting("web.max-viewers", "the limit of viewers is fixed at 16"),
)
"""Settings of version 0.1 that version 0.2 accepts."""


def describe() -> tuple[SettingRow, ...]:
    """Every setting in the order of the table, `config.file` first."""
    return (CONFIG_FILE, *ROWS)


def row(name: str) -> SettingRow:
    """The row of one setting."""
    return next(row for row in describe() if row.name == name)


def advice(unknown: str, known: Iterable[str], otherwise: str = "`ibpulse serve --help` lists every setting") -> str:
    """The end of a message about an unknown name: the nearest known one, or what else to do."""
    from difflib import get_close_matches  # only for those who mistyped

    nearest = get_close_matches(unknown, list(known), n=1, cutoff=0.6)
    return f"did you mean {nearest[0]}?" if nearest else otherwise
