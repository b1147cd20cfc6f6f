"""The faults and the near misses: what a node suffers, and which alerts it raises after how many minutes.

Both times of `Fires` are minutes after the beginning of the fault: the first evaluation at which the alert fires, and
the first at which it does not any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.grafana.rule_fleet import BEGIN, END, LINE_RATE, NO_JOB, Course, Node, always, during, jumps, stopped

P = "ibpulse_port_"
JOB_SECONDS = "ibpulse_node_moe_saturated_seconds_total"
MARKS = {"ibpulse_rp_cnp_packets_handled_total mlx5_0": during(500, 1)}


@dataclass(frozen=True)
class Fires:
    """One alert of a fault: its severity, its subject, and from and until when."""

    alert: str
    severity: str
    after: int
    until: int
    device: str = ""
    port: str = ""
    job: str = ""


@dataclass(frozen=True)
class Fault:
    """A fault on the first of its nodes; the others are needed for it. Without `fires` it is a near miss."""

    name: str
    nodes: tuple[Node, ...]
    fires: tuple[Fires, ...] = ()


def _one(name: str, courses: Mapping[str, Course], *fires: Fires, **node: object) -> Fault:
    return Fault(name, (Node(name, courses, **node),), fires)  # type: ignore[arg-type]


def _down(minutes: float, device: str = "mlx5_0") -> dict[str, Course]:
    """A link that is down for some minutes."""
    flap = {"ibpulse_link_downed_total": jumps(1), f"{P}state_changes_total": jumps(2)}
    down = {
        f"{P}up": during(0, 1, minutes),
        f"{P}rate_bytes_per_second": during(None, LINE_RATE, minutes),
        f"{P}down_seconds_total": during(1, 0, minutes),
    }
    return {f"{name} {device}": course for name, course in (flap | down).items()}


def _seconds(amount: float) -> dict[str, Course]:
    """Seconds for which the link was down between two scrapes."""
    return {f"{P}down_seconds_total mlx5_0": jumps(amount)}


def _job(name: str, size: int, **courses: Course) -> tuple[Node, ...]:
    """Nodes of one job, of which the first has the courses."""
    first = {f"ibpulse_job_{metric}": course for metric, course in courses.items()}
    return tuple(Node(f"{name}-{number}", first if not number else {}, job=name) for number in range(size))


def _moe(share: float) -> dict[str, Course]:
    return {"ibpulse_node_moe_saturated": during(1), JOB_SECONDS: during(share)}


def _silent(early: float) -> dict[str, Course]:
    """A node whose job has no traffic, and no steps any more."""
    return {
        "ibpulse_job_last_traffic_timestamp_seconds": stopped(early),
        "ibpulse_job_step_period_seconds": during(float("nan"), 0.8),
    }


FROM_12 = (12 * 60, float("inf"))
FORTY = (END - BEGIN) / 60
PORT0 = {"device": "mlx5_0", "port": "1"}
FAULTS = (
    _one("moe-costs", _moe(0.95) | MARKS, Fires("IBPulseSustainedMoESaturation", "warning", 16, 49, job="moe-costs")),
    _one("moe", _moe(0.95), Fires("IBPulseSustainedMoESaturation", "info", 16, 49, job="moe")),
    _one("moe-unknown", _moe(0.95), Fires("IBPulseSustainedMoESaturation", "info", 15, 46), job=""),
    _one("moe-half", _moe(0.7)),
    _one(
        "saturated",
        {f"{P}transmit_saturated_seconds_total mlx5_0": during(0.98)} | MARKS,
        Fires("IBPulsePortSaturated", "info", 19, 55, **PORT0),
    ),
    _one("saturated-less", {f"{P}receive_saturated_seconds_total mlx5_0": during(0.85)} | MARKS),
    _one("saturated-at-ease", {f"{P}transmit_saturated_seconds_total mlx5_0": during(0.98)}),
    _one(
        "saturated-storage",
        {
            f"{P}transmit_saturated_seconds_total mlx5_2": during(0.98),
            "ibpulse_rp_cnp_packets_handled_total mlx5_2": during(500, 1),
        },
    ),
    Fault(
        "stalled",
        tuple(
            Node(f"stalled-{n}", _silent(early), job="stalled", job_span=FROM_12) for n, early in enumerate((2, 0, 0))
        ),
        (Fires("IBPulseTrafficStalled", "warning", 6, 42, job="stalled"),),
    ),
    Fault("few-steps", (Node("few-steps-0", _silent(0), job="few-steps", job_span=(17 * 60, float("inf"))),)),
    Fault(
        "pauses",
        tuple(
            Node(f"pauses-{n}", {"ibpulse_job_last_traffic_timestamp_seconds": stopped(0.0, 3)}, job="pauses")
            for n in range(2)
        ),
    ),
    Fault(
        "no-steps",
        tuple(
            Node(
                f"no-steps-{n}",
                {
                    "ibpulse_job_last_traffic_timestamp_seconds": stopped(),
                    "ibpulse_job_step_period_seconds": always(float("nan")),
                },
                job="no-steps",
            )
            for n in range(2)
        ),
    ),
    Fault(
        "step",
        _job("step", 1, step_period_seconds=during(0.96, 0.8)),
        (Fires("IBPulseStepTimeRegressed", "info", 12, 41, job="step"),),
    ),
    Fault("step-little", _job("step-little", 1, step_period_seconds=during(0.84, 0.8))),
    # a job that is still new, and one that ends soon
    _one("step-early", {"ibpulse_job_step_period_seconds": during(0.96, 0.8)}, job="early", job_span=(840, 2580)),
    _one("step-ends", {"ibpulse_job_step_period_seconds": during(0.96, 0.8)}, job="ends", job_span=(0, BEGIN + 480)),
    Fault("step-double", _job("step-double", 1, step_period_seconds=during(1.6, 0.8))),
    Fault(
        "behind",
        _job("behind", 5, active_bandwidth_bytes_per_second=during(56e9, 80e9)),
        (Fires("IBPulseNodeBehindItsJob", "warning", 14, 49, job="behind"),),
    ),
    Fault("behind-little", _job("behind-little", 5, active_bandwidth_bytes_per_second=during(72e9, 80e9))),
    Fault("behind-few", _job("behind-few", 3, active_bandwidth_bytes_per_second=during(56e9, 80e9))),
    Fault(
        "behind-many",
        tuple(
            Node(
                f"behind-many-{n}",
                {"ibpulse_job_active_bandwidth_bytes_per_second": during(56e9 if n < 2 else 80e9, 80e9)},
                job="behind-many",
            )
            for n in range(5)
        ),
    ),
    _one(
        "down",
        _down(FORTY),
        Fires("IBPulseLinkDownInJob", "critical", 1, 58, **PORT0),
        Fires("IBPulsePortDown", "warning", 3, 49, **PORT0),
        Fires("IBPulseLinkWentDown", "warning", 1, 11, **PORT0),
    ),
    _one(
        "down-unused",
        _down(FORTY) | {"ibpulse_node_last_traffic_timestamp_seconds": always(None)},
        Fires("IBPulsePortDown", "warning", 3, 49, **PORT0),
        Fires("IBPulseLinkWentDown", "warning", 1, 11, **PORT0),
        job=NO_JOB,
    ),
    _one(
        "down-unknown",
        _down(FORTY),
        Fires("IBPulseLinkDownInJob", "critical", 1, 58, **PORT0),
        Fires("IBPulsePortDown", "warning", 3, 49, **PORT0),
        Fires("IBPulseLinkWentDown", "warning", 1, 11, **PORT0),
        job="",
    ),
    _one("down-storage", _down(FORTY, "mlx5_2")),
    _one("flap", _down(0.08) | _seconds(5), Fires("IBPulseLinkWentDown", "warning", 1, 11, **PORT0)),
    _one(
        "down-10s",
        _down(0.08) | _seconds(10),
        Fires("IBPulseLinkDownInJob", "critical", 1, 19, **PORT0),
        Fires("IBPulseLinkWentDown", "warning", 1, 11, **PORT0),
    ),
    # without the counter of the kernel
    _one(
        "flap-uncounted",
        {f"{P}state_changes_total mlx5_0": jumps(2)},
        Fires("IBPulseLinkWentDown", "warning", 1, 11, **PORT0),
    ),
    _one("came-up", {f"{P}state_changes_total mlx5_0": jumps(1)}),
    _one("flap-storage", _down(0.08, "mlx5_2")),
    _one(
        "down-90s",
        _down(1.5),
        Fires("IBPulseLinkDownInJob", "critical", 1, 20, **PORT0),
        Fires("IBPulseLinkWentDown", "warning", 1, 11, **PORT0),
    ),
    _one(
        "missing",
        {"ibpulse_node_rails": during(1, 2)},
        Fires("IBPulseRailMissing", "critical", 4, 50),
        lost={"mlx5_0": (BEGIN + 1, END + 1)},
    ),
    _one(
        "missing-unused",
        {"ibpulse_node_rails": during(1, 2), "ibpulse_node_last_traffic_timestamp_seconds": always(None)},
        Fires("IBPulseRailMissing", "warning", 4, 50),
        lost={"mlx5_0": (BEGIN + 1, END + 1)},
        job=NO_JOB,
    ),
    _one(
        "missing-90s",
        {"ibpulse_node_rails": during(1, 2, 1.5)},
        lost={"mlx5_0": (BEGIN + 1, BEGIN + 91)},
    ),
    # two rails of three became ports for storage
    _one(
        "roles",
        {"ibpulse_node_rails": during(2, 3), "ibpulse_node_expected_rails": during(2, 3)},
    ),
    _one(
        "trained",
        {f"{P}trained_down mlx5_0": during(1)},
        Fires("IBPulseRailTrainedDown", "warning", 6, 49, **PORT0),
    ),
    _one("trained-4m", {f"{P}trained_down mlx5_0": during(1, 0, 4)}),
    _one(
        "symbols",
        {"ibpulse_symbol_error_total mlx5_0": during(0.02)},
        Fires("IBPulseSymbolErrors", "warning", 27, 61, **PORT0),
    ),
    _one("symbols-few", {"ibpulse_symbol_error_total mlx5_0": during(0.003)}),
    _one("symbols-once", {"ibpulse_symbol_error_total mlx5_0": jumps(10_000)}),
    _one(
        "acks",
        {"ibpulse_local_ack_timeout_errors_total mlx5_0": during(0.1)},
        Fires("IBPulseAckTimeouts", "warning", 1, 50, **PORT0),
    ),
    _one("acks-two", {"ibpulse_local_ack_timeout_errors_total mlx5_0": jumps(2)}),
    _one("acks-storage", {"ibpulse_local_ack_timeout_errors_total mlx5_2": during(0.1)}),
    _one("idle", {f"{P}rail_idle mlx5_0": during(1)}, Fires("IBPulseRailIdle", "warning", 6, 46, **PORT0)),
    _one(
        "idle-down",
        {f"{P}rail_idle mlx5_0": during(1), f"{P}up mlx5_0": during(0, 1)},
        Fires("IBPulsePortDown", "warning", 3, 49, **PORT0),
    ),
    _one("idle-4m", {f"{P}rail_idle mlx5_0": during(1, 0, 4)}),
    _one("slow", {f"{P}rail_slow mlx5_0": during(1)}, Fires("IBPulseRailSlow", "warning", 11, 46, **PORT0)),
    _one("slow-9m", {f"{P}rail_slow mlx5_0": during(1, 0, 9)}),
    _one(
        "pcie",
        {"ibpulse_device_pcie_bytes_per_second mlx5_0": during(31.5e9, 63e9)},
        Fires("IBPulsePcieDegraded", "warning", 16, 49, device="mlx5_0"),
    ),
    _one("pcie-14m", {"ibpulse_device_pcie_bytes_per_second mlx5_0": during(31.5e9, 63e9, 14)}),
    _one("pcie-full", {"ibpulse_device_pcie_bytes_per_second mlx5_0": during(62.9e9, 63e9)}),
    _one("exporter", {"up": during(0, 1)}, Fires("IBPulseExporterDown", "warning", 6, 49)),
    _one("exporter-4m", {"up": during(0, 1, 4)}),
    _one(
        "stale",
        {"ibpulse_aggregated_until_timestamp_seconds": stopped()},
        Fires("IBPulseNumbersStale", "warning", 5, 49),
    ),
    _one("stale-3m", {"ibpulse_aggregated_until_timestamp_seconds": stopped(0.0, 3)}),
    _one(
        "sampler",
        {"ibpulse_sampler_heartbeat_age_seconds": during(15, 0.1)},
        Fires("IBPulseSamplerDown", "warning", 3, 49),
    ),
    _one("sampler-late", {"ibpulse_sampler_heartbeat_age_seconds": during(9, 0.1)}),
    _one("sampler-90s", {"ibpulse_sampler_heartbeat_age_seconds": during(60, 0.1, 1.5)}),
    _one(
        "unreadable",
        {f"{P}left_alone mlx5_0": during(1)},
        Fires("IBPulseReadsFailing", "warning", 11, 46, **PORT0),
    ),
    _one(
        "errors",
        {"ibpulse_sampler_read_errors_total mlx5_0": during(2)},
        Fires("IBPulseReadsFailing", "warning", 16, 50, **PORT0),
    ),
    _one("errors-few", {"ibpulse_sampler_read_errors_total mlx5_0": during(0.8)}),
    _one("unreadable-9m", {f"{P}left_alone mlx5_0": during(1, 0, 9)}),
    _one(
        "quarantine",
        {"ibpulse_device_quarantined mlx5_0": during(1)},
        Fires("IBPulseDeviceQuarantined", "warning", 6, 49, device="mlx5_0"),
    ),
    _one("quarantine-4m", {"ibpulse_device_quarantined mlx5_0": during(1, 0, 4)}),
    _one(
        "ticks",
        {"ibpulse_sampler_missed_ticks_total": during(1.5), "ibpulse_sampler_ticks_total": during(98.5, 100)},
        Fires("IBPulseSamplerMissingTicks", "warning", 18, 50),
    ),
    _one("ticks-few", {"ibpulse_sampler_missed_ticks_total": during(0.8)}),
    _one(
        "throttled",
        {"ibpulse_cgroup_throttled_periods_total": during(0.15)},
        Fires("IBPulseCpuThrottled", "warning", 17, 52),
    ),
    _one("throttled-little", {"ibpulse_cgroup_throttled_periods_total": during(0.08)}),
    _one(
        "recorder",
        {"ibpulse_capture_errors_total": during(0.01)},
        Fires("IBPulseRecorderFailing", "warning", 1, 56),
    ),
    _one(
        "refresh",
        {f"{P}effective_resolution_seconds mlx5_0": during(0.03, 0.01)},
        Fires("IBPulseCounterSourceDegraded", "info", 11, 46, **PORT0),
    ),
    _one("refresh-little", {f"{P}effective_resolution_seconds mlx5_0": during(0.019, 0.01)}),
    _one("refresh-9m", {f"{P}effective_resolution_seconds mlx5_0": during(0.05, 0.01, 9)}),
    _one(
        "lengthened",
        {"ibpulse_device_interval_lengthened mlx5_0": during(1, None)},
        Fires("IBPulseIntervalLengthened", "info", 16, 46, device="mlx5_0"),
    ),
    _one("lengthened-14m", {"ibpulse_device_interval_lengthened mlx5_0": during(1, None, 14)}),
    _one(
        "resets",
        {f"{P}resets_total mlx5_0": jumps(1, 20, 120)},
        Fires("IBPulseCountersReset", "info", 5, 50, **PORT0),
    ),
    _one("resets-two", {f"{P}resets_total mlx5_0": jumps(1, 2, 120)}),
    _one(
        "stuck",
        {f"{P}counter_saturated mlx5_0": during(1, None)},
        Fires("IBPulseErrorCounterStuck", "info", 16, 46, **PORT0),
    ),
    _one("stuck-14m", {f"{P}counter_saturated mlx5_0": during(1, None, 14)}),
    _one("notice", {"ibpulse_fabric_notices": during(2)}, Fires("IBPulseFabricNotice", "info", 31, 46)),
    _one("notice-29m", {"ibpulse_fabric_notices": during(2, 0, 29)}),
)
