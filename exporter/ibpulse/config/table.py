"""The table of settings: name, default, value and help sentence of each, in words. It must not read any source.

It drives the help texts and the documents, and the checked model takes its names and defaults from it. Defaults are
written as people write them and pass the same checks as a given value. No pydantic here: help texts must be quick.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PREFIX = "IBPULSE_"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting: `name` as in `sampler.interval`, the word for its value, its default as text, a help sentence.

    `shown` stands for a default that is found only at the start, or that is no text.
    """

    name: str
    metavar: str
    default: str
    sentence: str
    shown: str = ""

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

    @property
    def is_list(self) -> bool:
        """Whether the setting takes several values."""
        return self.metavar.endswith(",...")

    @property
    def default_text(self) -> str:
        """The default for people."""
        return self.shown or self.default


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
        "analysis.burst-low",
        "RATE",
        "",
        "Rate at or below which a burst ends, if another than the one above which it begins; "
        "at most analysis.active-threshold.",
        "analysis.active-threshold",
    ),
    SettingRow(
        "analysis.traffic-window",
        "DURATION",
        "1m",
        "What the step period and the signature are found in, 10s to 10m in whole seconds. "
        "Steps up to a quarter of it are found. The default is cut to sampler.history.",
    ),
    SettingRow(
        "analysis.signature-dense",
        "NUMBER,...",
        "0.747,0.2,0.31,0.385,0.66,0.386",
        "What dense_like looks like: duty cycle, CV at 10, 50 and 100 ms, peak and active utilisation.",
    ),
    SettingRow(
        "analysis.signature-moe",
        "NUMBER,...",
        "0.916,0.42,0.25,0.197,0.94,0.519",
        "What moe_like looks like, by the same six numbers.",
    ),
    SettingRow(
        "analysis.signature-tolerance",
        "NUMBER,...",
        "0.06,0.06,0.08,0.08,0.12,0.08",
        "Distance of each of the six numbers at which the resemblance has fallen to 0.61 (one sigma).",
    ),
    SettingRow(
        "analysis.signature-confidence", "RATIO", "0.3", "Confidence below which the signature is unknown, 0 to 1."
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
        "web.max-wide-requests",
        "COUNT",
        "2",
        "Wide window requests that are answered at a time, 1 to 64; more are refused.",
    ),
    SettingRow(
        "web.max-points",
        "COUNT",
        "200000",
        "Values in one window response (ports x 2 directions x bins), 1000 to 100000000.",
    ),
    SettingRow("web.max-viewers", "COUNT", "16", "Viewers of the live stream at a time, 1 to 1000; more are refused."),
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
