"""What triggers a capture: the rules on played jobs, and the alerts of this node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ibpulse.agent.aggregator.snapshot import CARRYING, DOWN, IDLE, QUIET, Observation
from ibpulse.agent.flightrecorder import triggers
from ibpulse.core.captures import REMEMBERED, Alert, host_of, join_labels, parse_start
from ibpulse.workbench.simulate.timeline import Workload
from ibpulse.workbench.simulate.workloads import DENSE, MOE, ExpertParallel, Stretched
from tests.flightrecorder.played import IDLE as SILENCE
from tests.flightrecorder.played import Act, play
from tests.tables import for_each

MINUTE_NS = 60 * 10**9
OBSERVATION = Observation(100, 10**18, 200e9, 0.3, "dense_like", False, {"mlx5_0:1": CARRYING, "mlx5_1:1": CARRYING})


def told(path: Path, *acts: Act, cooldown_ns: int = 10 * MINUTE_NS) -> list[tuple[int, str, dict]]:
    """Second, rule and labels of everything that all the rules tell of a played job."""
    rules = triggers.LocalRules(tuple(triggers.RULES), cooldown_ns, triggers.RuleOptions())
    return [
        (second, trigger.origin, dict(trigger.labels))
        for second, snapshot in enumerate(play(path, *acts), 1)
        for trigger in rules.evaluate(snapshot)
    ]


def labels_of(name: str, observations: Iterable[Observation]) -> list[dict[str, str]]:
    """What one rule tells of what is seen."""
    (state, find), found = triggers.RULES[name], []
    for observation in observations:
        state, labels = find(state, observation, triggers.RuleOptions())
        found += [] if labels is None else [dict(labels)]
    return found


@for_each(
    [
        ({"device": "mlx5_4,mlx5_5", "port": "1"}, "mlx5_4:1, mlx5_5:1"),
        ({"device": "mlx5_4,mlx5_5", "port": "1,2"}, "mlx5_4, mlx5_5"),
        ({"device": "mlx5_4"}, "mlx5_4"),
        ({"port": "mlx5_4:1,mlx5_5:1"}, "mlx5_4:1, mlx5_5:1"),
        ({"port": "10055", "device": ""}, ""),
        ({"alertname": "Stalled"}, ""),
    ]
)
def test_ports_that_labels_name(labels: dict[str, str], ports: str) -> None:
    assert triggers.ports_of(labels) == ports


@pytest.mark.parametrize("workload", [DENSE, MOE, ExpertParallel()], ids=lambda workload: workload.name)
def test_five_minutes_of_a_healthy_job_are_silent(tmp_path: Path, workload: Workload) -> None:
    assert told(tmp_path, Act(SILENCE, 15), Act(workload, 300)) == []


@pytest.mark.parametrize(("workload", "periods"), [(DENSE, 0.315), (MOE, 1.444)], ids=["dense", "moe"])
def test_traffic_that_stops_after_regular_steps_triggers(tmp_path: Path, workload: Workload, periods: float) -> None:
    ((second, rule, labels),) = told(tmp_path, Act(workload, 60), Act(SILENCE, 60))
    assert rule == "traffic-stalled"
    assert 60 + 5 * periods <= second <= 60 + max(3, 5 * periods) + 3
    assert float(labels["step_seconds"]) == pytest.approx(periods, rel=0.02)


@pytest.mark.parametrize("workload", [DENSE, MOE], ids=["dense", "moe"])
def test_steps_that_take_a_tenth_longer_trigger_once(tmp_path: Path, workload: Workload) -> None:
    found = told(tmp_path, Act(workload, 150), Act(Stretched(workload, 1.1), 120), cooldown_ns=1)
    assert [rule for _, rule, _ in found] == ["step-slower"]
    assert 150 < found[0][0] <= 150 + 90
    step, usual = (float(found[0][2][name]) for name in ("step_seconds", "usual_step_seconds"))
    assert step / usual == pytest.approx(1.1, abs=0.01)


def test_saturation_that_begins_in_a_running_job_triggers(tmp_path: Path) -> None:
    ((second, rule, labels),) = told(tmp_path, Act(DENSE, 120), Act(MOE, 180))
    assert (rule, labels) == ("moe-saturation", {"signature": "moe_like"})
    assert 120 + 30 < second < 120 + 120


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (Act(ExpertParallel(), 20, flow={3: 0.0}), "idle"),
        (Act(ExpertParallel(), 20, down=(3,)), "down"),
        (Act(ExpertParallel(), 20, gone=(3,)), "gone"),
    ],
    ids=["idle", "down", "gone"],
)
def test_a_lost_rail_triggers_once(tmp_path: Path, fault: Act, state: str) -> None:
    ((second, rule, labels),) = told(tmp_path, Act(ExpertParallel(), 30), fault, cooldown_ns=1)
    assert (rule, labels) == ("rail-lost", {"port": "mlx5_3:1", "state": state})
    assert 30 < second <= 37


def test_a_rail_that_never_carried_traffic_is_not_lost(tmp_path: Path) -> None:
    silent = Act(ExpertParallel(), 30, flow={3: 0.0})
    assert told(tmp_path, silent, replace(silent, down=(3,))) == []


def test_two_rails_lost_together_trigger_once(tmp_path: Path) -> None:
    ((_, _, labels),) = told(tmp_path, Act(ExpertParallel(), 30), Act(ExpertParallel(), 20, down=(3, 5)))
    assert labels == {"port": "mlx5_3:1,mlx5_5:1", "state": "down"}


def test_a_rule_triggers_again_only_after_the_cooldown(tmp_path: Path) -> None:
    acts = (Act(ExpertParallel(), 30), Act(ExpertParallel(), 20, down=(3,))) * 3
    assert [second // 50 for second, _, _ in told(tmp_path, *acts, cooldown_ns=90 * 10**9)] == [0, 2]


def test_a_snapshot_has_what_happened_in_its_second(tmp_path: Path) -> None:
    _, second = play(tmp_path, Act(DENSE, 2, flow={6: 0.0}))
    (observation,) = second.seconds
    assert observation.end_tick == 200
    assert observation.rate_bytes_per_second == pytest.approx(203e9, rel=0.1)
    assert observation.rails["mlx5_6:1"] == IDLE


def test_missing_data_is_not_a_stall() -> None:
    steps = [OBSERVATION] * 60
    dark = [replace(OBSERVATION, rate_bytes_per_second=None)] * 30
    assert labels_of("traffic-stalled", [*steps, *dark, *steps]) == []
    assert labels_of("traffic-stalled", [*steps, *[replace(OBSERVATION, rate_bytes_per_second=0.0)] * 3]) == [
        {"step_seconds": "0.300", "quiet_seconds": "3"}
    ]


def test_a_short_pause_is_no_stall_and_neither_is_silence_without_regular_steps() -> None:
    slow = replace(OBSERVATION, step_seconds=2.0)
    pause = [replace(slow, rate_bytes_per_second=0.0)] * 9
    assert labels_of("traffic-stalled", [*[slow] * 60, *pause, *[slow] * 60, *pause]) == []
    irregular = [replace(OBSERVATION, step_seconds=None)] * 60
    assert labels_of("traffic-stalled", [*irregular, *[replace(OBSERVATION, rate_bytes_per_second=0.0)] * 60]) == []


def test_a_doubled_period_with_equal_traffic_is_no_slowdown() -> None:
    doubled = [replace(OBSERVATION, step_seconds=0.6)] * 60
    assert labels_of("step-slower", [*[OBSERVATION] * 120, *doubled]) == []
    slower = [replace(OBSERVATION, step_seconds=0.6, rate_bytes_per_second=100e9)] * 60
    assert labels_of("step-slower", [*[OBSERVATION] * 120, *slower]) == [
        {"step_seconds": "0.600", "usual_step_seconds": "0.300"}
    ]


def test_steps_that_were_lost_for_a_while_start_over() -> None:
    slower = replace(OBSERVATION, step_seconds=0.6, rate_bytes_per_second=100e9)
    lost = replace(OBSERVATION, step_seconds=None)
    dark = replace(OBSERVATION, rate_bytes_per_second=None)
    assert labels_of("step-slower", [*[OBSERVATION] * 120, lost, *[slower] * 120]) == []
    assert len(labels_of("step-slower", [*[OBSERVATION] * 120, dark, *[slower] * 120])) == 1


def test_saturation_of_a_new_job_does_not_trigger() -> None:
    quiet = replace(OBSERVATION, rate_bytes_per_second=0.0)
    dark = replace(OBSERVATION, rate_bytes_per_second=None)
    moe = replace(OBSERVATION, signature="moe_like")
    on = replace(moe, moe_saturated=True)
    assert labels_of("moe-saturation", [*[OBSERVATION] * 95, quiet, *[OBSERVATION] * 60, *[moe] * 30, on]) == []
    assert labels_of("moe-saturation", [*[OBSERVATION] * 95, dark, *[moe] * 30, on, on, moe, on]) == [
        {"signature": "moe_like"}
    ]


def test_rails_that_are_quiet_with_all_others_are_not_lost() -> None:
    quiet = replace(OBSERVATION, rails=dict.fromkeys(OBSERVATION.rails, QUIET))
    flap = replace(OBSERVATION, rails={**OBSERVATION.rails, "mlx5_1:1": DOWN})
    assert labels_of("rail-lost", [*[OBSERVATION] * 20, *[quiet] * 60]) == []
    assert labels_of("rail-lost", [*[OBSERVATION] * 20, flap, *[OBSERVATION] * 20, flap]) == []


NOW_NS = 1_763_683_200 * 10**9


def alert(labels: Mapping[str, str], fingerprint: str = "f", *, firing: bool = True, starts_ns: int = NOW_NS) -> Alert:
    return Alert(fingerprint, firing, {"alertname": "Stalled", **labels}, starts_ns)


OURS = [
    {},
    {"severity": "page"},
    {"instance": ""},
    {"instance": "gpu7:10055"},
    {"instance": "GPU7.cluster.example.org:10055"},
    {"instance": "localhost:10055"},
    {"instance": "127.0.0.1:10055"},
    {"instance": "[::1]:10055"},
    {"node": "gpu7.cluster.example.org"},
    {"nodename": "gpu7"},
    {"hostname": "gpu7"},
    {"instance": "10.255.255.254:9100", "node": "gpu7"},
]
OTHERS = [
    {"instance": "gpu8:10055"},
    {"instance": "gpu77:10055"},
    {"instance": "203.0.113.7:10055"},
    {"instance": "[2001:db8::7]:10055"},
    {"instance": "0.0.0.0:10055"},
    {"node": "gpu8"},
    {"hostname": "gpu7.elsewhere.example.org"},
]


@for_each([*((labels, True) for labels in OURS), *((labels, False) for labels in OTHERS)])
def test_firing_alerts_for_this_node_are_chosen(labels: Mapping[str, str], ours: bool) -> None:
    names = ("gpu7.cluster.example.org",) if not ours and "hostname" in labels else ("gpu7",)
    receiver = triggers.AlertReceiver(names, MINUTE_NS)
    assert receiver.choose([alert(labels)], NOW_NS) == [alert(labels)] * ours
    assert receiver.choose([alert(labels, firing=False)], NOW_NS) == []


def test_an_alert_is_captured_again_after_the_cooldown_alone() -> None:
    receiver, first, other = triggers.AlertReceiver(("gpu7",), MINUTE_NS), alert({}, "f"), alert({}, "g")
    receiver.remember(receiver.choose([first], NOW_NS), NOW_NS)
    assert receiver.choose([first, other], NOW_NS + MINUTE_NS - 1) == [other]
    assert receiver.choose([first], NOW_NS + MINUTE_NS) == [first]


def test_the_receiver_forgets_the_oldest_alerts() -> None:
    receiver = triggers.AlertReceiver(("gpu7",), MINUTE_NS)
    alerts = [alert({}, str(number)) for number in range(REMEMBERED + 1)]
    receiver.remember(alerts, NOW_NS)
    assert receiver.choose(alerts, NOW_NS) == [alerts[0]]


def test_a_capture_lies_around_the_start_of_the_first_alert() -> None:
    chosen = [alert({"device": "mlx5_1"}, starts_ns=NOW_NS - 20), alert({"device": "mlx5_2"}, starts_ns=NOW_NS - 30)]
    trigger = triggers.make_trigger(chosen, NOW_NS, NOW_NS - 100)
    assert (trigger.origin, trigger.reason, trigger.instant_ns) == ("alertmanager", "Stalled", NOW_NS - 30)
    assert trigger.labels == {"alertname": "Stalled", "device": "mlx5_1,mlx5_2"}


@pytest.mark.parametrize("starts_ns", [None, NOW_NS - 101, NOW_NS + 1])
def test_a_start_that_the_ring_does_not_hold_is_now(starts_ns: int | None) -> None:
    trigger = triggers.make_trigger([Alert("f", True, {}, starts_ns)], NOW_NS, NOW_NS - 100)
    assert (trigger.reason, trigger.instant_ns) == ("alert", NOW_NS)


def test_joined_labels_are_bounded() -> None:
    joined = join_labels([{"a": f"{number:03d}" * 20} for number in range(100)])
    assert len(joined["a"]) == 1000


@for_each(
    [
        ("gpu7:10055", "gpu7"),
        ("gpu7", "gpu7"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("[::1]", "::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("gpu7:", "gpu7:"),
    ]
)
def test_the_host_of_an_instance(instance: str, host: str) -> None:
    assert host_of(instance) == host


def test_the_start_of_an_alert() -> None:
    assert parse_start("2025-11-21T01:00:00.123456789+01:00") == NOW_NS + 123_456_789
    # of one that has not ended, and what is no time
    assert parse_start("0001-01-01T00:00:00Z") is parse_start("soon") is None
