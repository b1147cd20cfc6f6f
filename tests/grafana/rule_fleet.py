"""Nodes whose series have the labels that a PodMonitor gives: healthy, with faults, with pods that are replaced.

A node has two rails and a port for storage. What changes with time is a function of the second; counters are given by
their rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.grafana.rule_engine import SCRAPE_SECONDS, Series, Value

RAILS, PORTS = ("mlx5_0", "mlx5_1"), ("mlx5_0", "mlx5_1", "mlx5_2")
LINE_RATE = 50e9
BEGIN, END, LAST = 31 * 60, 71 * 60, 96 * 60
"""Seconds at which every fault begins and ends, and of the last sample. A fault begins just after a scrape."""
Course = Callable[[float], Value]
"""The value of a gauge, or the rate of a counter per second, at a second."""

# counters that begin at 0 with the process; those of the kernel go on
PROCESS = {
    "ibpulse_port_down_seconds_total": 0.0,
    "ibpulse_port_state_changes_total": 0.0,
}
KERNEL = {
    "ibpulse_link_downed_total": 0.0,
    "ibpulse_symbol_error_total": 0.0,
    "ibpulse_local_ack_timeout_errors_total": 0.0,
    "ibpulse_packet_sequence_errors_total": 0.0,
    "ibpulse_rp_cnp_packets_handled_total": 1.0,
}
OF_NODE = {
    "up": 1.0,
    "ibpulse_node_rails": 2.0,
    "ibpulse_node_expected_rails": 2.0,
    "ibpulse_node_moe_saturated": 0.0,
    "ibpulse_node_jobs": 1.0,
    "ibpulse_build_info": 1.0,
}
OF_RAIL = {"ibpulse_port_rail_idle": 0.0, "ibpulse_port_rail_slow": 0.0, "ibpulse_port_trained_down": 0.0}
OF_PORT = {
    "ibpulse_port_info": 1.0,
    "ibpulse_port_up": 1.0,
    "ibpulse_port_rate_bytes_per_second": LINE_RATE,
}
OF_DEVICE = {
    "ibpulse_device_pcie_bytes_per_second": 63e9,
    "ibpulse_device_pcie_max_bytes_per_second": 63e9,
}
OF_JOB = {
    "ibpulse_job_step_period_seconds": 0.8,
    "ibpulse_job_active_bandwidth_bytes_per_second": 80e9,
    "ibpulse_job_duty_cycle_ratio": 0.7,
    "ibpulse_job_moe_saturated": 0.0,
    "ibpulse_job_stall": 0.0,
}
OWN_JOB, NO_JOB = "own", "-"
"""A job of its own, and none although the jobs of the node are known."""
CLOCKS = ("ibpulse_node_last_traffic_timestamp_seconds",)
JOB_CLOCK = "ibpulse_job_last_traffic_timestamp_seconds"


REASONS = {
    "silent": {"reason": "sampler-silent"},
    "hung": {"reason": "hung-device", "device": "mlx5_0"},
    "unreadable": {"reason": "unreadable-port", "device": "mlx5_0", "port": "1"},
    "coarse": {"reason": "slow-counters", "device": "mlx5_0", "port": "1"},
    "missing": {"reason": "missing-samples"},
}
"""The labels of `ibpulse_unreliable` by the second word of a course."""

# without a course of their own, series that a rule compares with those that have one
ALWAYS = {
    *("up", "ibpulse_node_rails", "ibpulse_node_expected_rails", "ibpulse_node_jobs", "ibpulse_port_job_info"),
    *("ibpulse_port_info", "ibpulse_port_up", "ibpulse_node_last_traffic_timestamp_seconds", "ibpulse_build_info"),
}
PARTNERS = {
    "ibpulse_symbol_error_total": "ibpulse_port_rate_bytes_per_second",
    "ibpulse_device_pcie_bytes_per_second": "ibpulse_device_pcie_max_bytes_per_second",
}


def during(value: Value, otherwise: Value = 0.0, minutes: float = (END - BEGIN) / 60) -> Course:
    """A value from the scrape after `BEGIN` on, for some minutes, and another one before and after."""
    return lambda second: value if BEGIN < second <= BEGIN + minutes * 60 else otherwise


def always(value: Value) -> Course:
    return lambda _: value


def jumps(amount: float, *minutes: float) -> Course:
    """A counter that is higher by an amount at the scrape after `BEGIN`, or some minutes later."""
    starts = [BEGIN + minute * 60 for minute in minutes or (0,)]
    return lambda second: amount * sum(0 < second - start <= SCRAPE_SECONDS for start in starts) / SCRAPE_SECONDS


def stopped(early: float = 0.0, minutes: float = (END - BEGIN) / 60) -> Course:
    """A clock that stands still during the fault, as that of the last traffic; it stopped some seconds early."""
    return lambda second: float(BEGIN) - early if BEGIN < second <= BEGIN + minutes * 60 else float(second)


def until(last: float) -> Course:
    """A clock that stops for good."""
    return lambda second: float(min(second, last))


@dataclass
class Node:
    """One node.

    `courses` replaces the usual course of a metric (`name`, or `name device`). `job` is the id of the job that has all
    its rails, empty if jobs are unknown; `lost` are spans without a device. `pods` are spans of pods, `gaps` spans of
    failed scrapes, all in seconds. `whole` nodes have every series; others, to save time, those with a course and those
    that rules compare them with.
    """

    name: str
    courses: Mapping[str, Course] = field(default_factory=dict)
    job: str = OWN_JOB
    job_span: tuple[float, float] = (0, float("inf"))
    lost: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    pods: tuple[tuple[float, float], ...] = ((0, float("inf")),)
    gaps: tuple[tuple[float, float], ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    cluster: str = "east"
    whole: bool = False

    def series(self, seconds: int) -> Iterator[Series]:
        """Every series of the node, scraped until a second."""
        own = {key.partition(" ")[0] for key in self.courses}
        wanted = ALWAYS | own | {PARTNERS[name] for name in own if name in PARTNERS}
        if self.job not in ("", NO_JOB, OWN_JOB):
            wanted |= {*OF_JOB, JOB_CLOCK}
        for number, span in enumerate(self.pods):
            target = {
                "cluster": self.cluster,
                "job": "ibpulse",
                "instance": self.name,
                "node": self.name,
                "namespace": "monitoring",
                "container": "ibpulse",
                "endpoint": "metrics",
                "pod": f"ibpulse-{self.name}-{number}",
                **self.extra,
            }
            for name, labels, course, kind in self._metrics():
                if not self.whole and name not in wanted:
                    continue
                values = list(self._sampled(name, labels, course, kind, span, seconds))
                if any(value is not None for value in values):
                    yield Series(name, target | labels, values)

    def _metrics(self) -> Iterator[tuple[str, dict[str, str], float, str]]:
        """Name, labels, usual value and kind of every series."""
        for name, value in OF_NODE.items():
            if name != "ibpulse_node_jobs":
                yield name, {}, value, "gauge"
        yield from ((name, {}, 0.0, "clock") for name in CLOCKS)
        for device in PORTS:
            yield from self._port(device)
        if self.job:
            yield "ibpulse_node_jobs", {}, 0.0 if self.job == NO_JOB else 1.0, "gauge"
        if self.job not in ("", NO_JOB):
            yield from self._job()
        yield from self._rare()

    def _port(self, device: str) -> Iterator[tuple[str, dict[str, str], float, str]]:
        port, is_rail = {"device": device, "port": "1"}, device in RAILS
        info = {"rail": str(is_rail).lower(), "role": "compute" if is_rail else "storage"}
        for name, value in (OF_PORT | (OF_RAIL if is_rail else {})).items():
            yield name, port | (info if name == "ibpulse_port_info" else {}), value, "gauge"
        yield from ((name, port, value, "kernel") for name, value in KERNEL.items())
        yield from ((name, port, value, "process") for name, value in PROCESS.items())
        yield from ((name, {"device": device}, value, "gauge") for name, value in OF_DEVICE.items())

    def _job(self) -> Iterator[tuple[str, dict[str, str], float, str]]:
        job = {"job_id": self.name if self.job == OWN_JOB else self.job}
        yield from ((name, job, value, "gauge") for name, value in OF_JOB.items())
        yield JOB_CLOCK, job, 0.0, "clock"
        for device in RAILS:
            port = {"device": device, "port": "1", "scheduler": "slurm", "source": "file"}
            yield "ibpulse_port_job_info", job | port, 1.0, "gauge"

    def _rare(self) -> Iterator[tuple[str, dict[str, str], float, str]]:
        """Series with a course that a healthy node does not have."""
        usual = {*OF_NODE, *OF_PORT, *OF_RAIL, *OF_DEVICE, *OF_JOB, *PROCESS, *KERNEL, *CLOCKS, JOB_CLOCK}
        for key in self.courses:
            name, _, device = key.partition(" ")
            if name not in usual:
                yield name, REASONS[device], float("nan"), "rare"

    def _sampled(
        self, name: str, labels: dict[str, str], usual: float, kind: str, span: tuple[float, float], seconds: int
    ) -> Iterator[Value]:
        device = next((key for key, each in REASONS.items() if each == labels), labels.get("device", ""))
        course = self.courses.get(f"{name} {device}") or self.courses.get(name)
        total = 0.0
        for second in range(0, seconds + 1, SCRAPE_SECONDS):
            step = course(second) if course else usual
            began = kind != "process" or span[0] <= second
            if kind in ("process", "kernel") and second and began:
                total += (step or 0.0) * SCRAPE_SECONDS
            yield self._visible(name, labels, kind, second, span, step, total, bool(course))

    def _visible(
        self,
        name: str,
        labels: dict[str, str],
        kind: str,
        second: int,
        span: tuple[float, float],
        step: Value,
        total: float,
        has_course: bool,
    ) -> Value:
        gone = self.lost.get(labels.get("device", ""), (0, 0))
        failed = any(begin <= second < end for begin, end in self.gaps)
        if not span[0] <= second < span[1]:
            return None
        if name == "up":
            return 0.0 if failed else step
        up = self.courses.get("up")
        if failed or (up and not up(second)) or gone[0] <= second < gone[1]:
            return None
        if ("_job_" in name or name == "ibpulse_node_jobs") and not self.job_span[0] <= second < self.job_span[1]:
            return 0.0 if name == "ibpulse_node_jobs" else None
        if kind in ("process", "kernel"):
            return total
        if kind == "clock" and not has_course:
            return float(second)
        return step
