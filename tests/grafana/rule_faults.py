"""The faults and the near misses: what a node suffers, and which alerts it raises after how many seconds.

Both times of `Fires` are seconds after the beginning of the fault: the first evaluation at which the alert fires, and
the first at which it does not any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.grafana.rule_fleet import (
    BEGIN,
    END,
    LINE_RATE,
    NO_JOB,
    REASONS,
    Course,
    Node,
    always,
    during,
    jumps,
    stopped,
)

P = "ibpulse_port_"
MOE, STEP = "ibpulse_job_moe_saturated", "ibpulse_job_step_period_seconds"
UNRELIABLE, STALL = "ibpulse_unreliable", "ibpulse_job_stall"


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
    reason: str = ""


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
    flap = {"ibpulse_link_downed_total": jumps(1), f"{P}state_changes_total": jumps(1, 0, minutes)}
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


def _of_job(name: str, size: int, *fires: Fires, **courses: Course) -> Fault:
    return Fault(name, _job(name, size, **courses), fires)


def _silent(early: float) -> dict[str, Course]:
    """A node whose job has no traffic, and no steps any more."""
    return {
        STALL: during(1),
        "ibpulse_job_last_traffic_timestamp_seconds": stopped(early),
        STEP: during(float("nan"), 0.8),
    }


LONGER = during(0.96, 0.8)
BEHIND = {"active_bandwidth_bytes_per_second": during(56e9, 80e9)}
BEGINS = {"active_bandwidth_bytes_per_second": during(56e9, 80e9, 4)}
FORTY = (END - BEGIN) / 60
PORT0 = {"device": "mlx5_0", "port": "1"}
FAULTS = (
    _one("moe", {MOE: during(1)}, Fires("IBPulseSustainedMoESaturation", "info", 795, 2835, job="moe")),
    _one(
        "moe-unknown",
        {"ibpulse_node_moe_saturated": during(1)},
        Fires("IBPulseSustainedMoESaturation", "info", 795, 2835),
        job="",
    ),
    # a job that is shorter than the window and the wait together
    _one("moe-young", {MOE: always(1)}, job="moe-young", job_span=(BEGIN, BEGIN + 12 * 60)),
    # seven of ten minutes
    _one("moe-half", {MOE: lambda second: float(second % 600 < 420) if BEGIN < second <= END else 0.0}),
    Fault(
        "stalled",
        tuple(Node(f"stalled-{n}", _silent(early), job="stalled") for n, early in enumerate((2, 0, 0))),
        (Fires("IBPulseTrafficStalled", "warning", 15, 2415, job="stalled"),),
    ),
    # a node that is lost at the same moment was not silent before, and has no job afterwards
    Fault(
        "stalled-lost",
        (
            *(Node(f"stalled-lost-{n}", {STALL: during(1)}, job="stalled-lost") for n in range(2)),
            Node("stalled-lost-2", {"up": during(0, 1, 9), STALL: during(None, 0, 1000)}, job="stalled-lost"),
        ),
        (Fires("IBPulseTrafficStalled", "warning", 15, 2415, job="stalled-lost"),),
    ),
    Fault(
        "stalled-ends",
        (Node("stalled-ends-0", {STALL: during(1)}, job="ends-soon", job_span=(0, BEGIN + 300)),),
        (Fires("IBPulseTrafficStalled", "warning", 15, 300, job="ends-soon"),),
    ),
    Fault("silent-but-one", tuple(Node(f"but-one-{n}", {STALL: during(n and 1)}, job="but-one") for n in range(3))),
    _of_job("step", 1, Fires("IBPulseStepTimeRegressed", "info", 60, 1035, job="step"), step_period_seconds=LONGER),
    _of_job("step-little", 1, step_period_seconds=during(0.84, 0.8)),
    # a job that is still new, and one that ends soon
    _one("step-early", {STEP: LONGER}, job="early", job_span=(BEGIN - 660, BEGIN + 1080)),
    _one("step-ends", {STEP: LONGER}, job="ends", job_span=(0, BEGIN + 45)),
    _of_job("step-30s", 1, step_period_seconds=during(0.96, 0.8, 0.5)),
    # longer steps for a minute of ten, and steps of the usual spread
    _of_job("step-evaluates", 1, step_period_seconds=lambda s: 1.04 if s % 600 < 60 else 0.8),
    _of_job("step-uneven", 1, step_period_seconds=lambda s: 9 + s * 7 % 4 / 2),
    _of_job("step-double", 1, step_period_seconds=during(1.6, 0.8)),
    _of_job("behind", 5, Fires("IBPulseNodeBehindItsJob", "warning", 75, 2730, job="behind"), **BEHIND),
    _of_job("behind-45s", 5, active_bandwidth_bytes_per_second=during(56e9, 80e9, 0.75)),
    Fault("behind-begins", tuple(replace(node, job_span=(BEGIN, END)) for node in _job("behind-begins", 5, **BEGINS))),
    _of_job("behind-little", 5, active_bandwidth_bytes_per_second=during(72e9, 80e9)),
    _of_job("behind-few", 3, **BEHIND),
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
    _one("down", _down(FORTY), Fires("IBPulseLinkDown", "critical", 15, 3060, **PORT0)),
    _one(
        "down-unused",
        _down(FORTY) | {"ibpulse_node_last_traffic_timestamp_seconds": always(None)},
        Fires("IBPulseLinkDown", "warning", 15, 3060, **PORT0),
        job=NO_JOB,
    ),
    _one("down-unknown", _down(FORTY), Fires("IBPulseLinkDown", "critical", 15, 3060, **PORT0), job=""),
    _one("down-storage", _down(FORTY, "mlx5_2")),
    # down and up between two scrapes
    _one("flap", _down(0.08) | _seconds(5), Fires("IBPulseLinkWentDown", "warning", 15, 615, **PORT0)),
    _one(
        "down-10s",
        _down(0.08) | _seconds(10),
        Fires("IBPulseLinkDown", "critical", 15, 675, **PORT0),
        Fires("IBPulseLinkWentDown", "warning", 15, 615, **PORT0),
    ),
    _one("came-up", {f"{P}state_changes_total mlx5_0": jumps(1)}),
    _one("flap-storage", _down(0.08, "mlx5_2")),
    _one(
        "down-90s",
        _down(1.5),
        Fires("IBPulseLinkDown", "critical", 15, 750, **PORT0),
        Fires("IBPulseLinkWentDown", "warning", 105, 615, **PORT0),
    ),
    _one(
        "missing",
        {"ibpulse_node_rails": during(1, 2)},
        Fires("IBPulseRailMissing", "critical", 45, 2910),
        lost={"mlx5_0": (BEGIN + 1, END + 1)},
    ),
    _one(
        "missing-unused",
        {"ibpulse_node_rails": during(1, 2), "ibpulse_node_last_traffic_timestamp_seconds": always(None)},
        Fires("IBPulseRailMissing", "warning", 45, 2910),
        lost={"mlx5_0": (BEGIN + 1, END + 1)},
        job=NO_JOB,
    ),
    _one("missing-15s", {"ibpulse_node_rails": during(1, 2, 0.25)}, lost={"mlx5_0": (BEGIN + 1, BEGIN + 16)}),
    # two rails of three became ports for storage
    _one("roles", {"ibpulse_node_rails": during(2, 3), "ibpulse_node_expected_rails": during(2, 3)}),
    _one(
        "trained", {f"{P}trained_down mlx5_0": during(1)}, Fires("IBPulseRailTrainedDown", "warning", 45, 2895, **PORT0)
    ),
    _one("trained-15s", {f"{P}trained_down mlx5_0": during(1, 0, 0.25)}),
    _one(
        "symbols",
        {"ibpulse_symbol_error_total mlx5_0": during(0.02)},
        Fires("IBPulseSymbolErrors", "warning", 1620, 3615, **PORT0),
    ),
    _one("symbols-few", {"ibpulse_symbol_error_total mlx5_0": during(0.003)}),
    _one("symbols-once", {"ibpulse_symbol_error_total mlx5_0": jumps(10_000)}),
    _one(
        "acks",
        {"ibpulse_local_ack_timeout_errors_total mlx5_0": during(0.1)},
        Fires("IBPulseAckTimeouts", "warning", 45, 2970, **PORT0),
    ),
    _one("acks-two", {"ibpulse_local_ack_timeout_errors_total mlx5_0": jumps(2)}),
    _one("acks-storage", {"ibpulse_local_ack_timeout_errors_total mlx5_2": during(0.1)}),
    _one("idle", {f"{P}rail_idle mlx5_0": during(1)}, Fires("IBPulseRailIdle", "warning", 75, 2715, **PORT0)),
    _one("idle-down", {f"{P}rail_idle mlx5_0": during(1), f"{P}up mlx5_0": during(0, 1)}),
    _one("idle-45s", {f"{P}rail_idle mlx5_0": during(1, 0, 0.75)}),
    _one("slow", {f"{P}rail_slow mlx5_0": during(1)}, Fires("IBPulseRailSlow", "warning", 75, 2715, **PORT0)),
    _one("slow-45s", {f"{P}rail_slow mlx5_0": during(1, 0, 0.75)}),
    _one(
        "pcie",
        {"ibpulse_device_pcie_bytes_per_second mlx5_0": during(31.5e9, 63e9)},
        Fires("IBPulsePcieDegraded", "warning", 915, 2895, device="mlx5_0"),
    ),
    _one("pcie-14m", {"ibpulse_device_pcie_bytes_per_second mlx5_0": during(31.5e9, 63e9, 14)}),
    _one("pcie-full", {"ibpulse_device_pcie_bytes_per_second mlx5_0": during(62.9e9, 63e9)}),
    _one("exporter", {"up": during(0, 1)}, Fires("IBPulseUnreliable", "warning", 615, 2715, reason="no-answer")),
    _one("exporter-9m", {"up": during(0, 1, 9)}),
    # it answers, and has withdrawn statistics that grew old
    _one(
        "withdrawn",
        {"ibpulse_build_info": during(None, 1)},
        Fires("IBPulseUnreliable", "warning", 615, 2715, reason="no-statistics"),
    ),
    *(
        _one(
            f"unreliable-{word}",
            {f"{UNRELIABLE} {word}": during(1, None)},
            Fires("IBPulseUnreliable", "warning", 615, 2715, **REASONS[word]),
        )
        for word in REASONS
    ),
    _one("unreliable-9m", {f"{UNRELIABLE} missing": during(1, None, 9)}),
)
