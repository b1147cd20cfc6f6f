"""What is said of the machine: kernel, clock, CPU, scheduler, affinity, room, web address."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ibpulse.agent.doctor import Level
from ibpulse.agent.doctor.facts import Facts, Folders, Mount, Space, WebPort
from ibpulse.agent.doctor.machine import TRAPS, find_traps, parse_cpus, parse_version
from ibpulse.base.clocks import ClockState
from ibpulse.core.model import SamplerHealth
from tests.doctor.making import make_facts, make_port, only_trouble, sentences, troubles
from tests.doctor.test_sample_checks import HW_SOURCE

RING = Space("ring.dir", "/run/ibpulse", 12_000_000, 10**9, True, "tmpfs")


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.8.0-45-generic", (6, 8)), ("4.18.0-553.el8", (4, 18)), ("7.3", (7, 3)), ("rolling", None)],
)
def test_a_release_has_a_version(release: str, version: tuple[int, int] | None) -> None:
    assert parse_version(release) == version


@pytest.mark.parametrize(
    ("release", "names"),
    [
        ("4.4.0", ["counters_ext"]),
        ("5.15.0", []),
        ("5.16.0", ["hw_counters of mlx5"]),
        ("strange", []),
    ],
)
def test_the_traps_of_a_kernel_are_those_of_its_version(release: str, names: list[str]) -> None:
    assert [trap.name for trap in find_traps(make_facts(machine={"kernel": release}))] == names


def test_every_trap_says_what_follows() -> None:
    assert all(trap.sentence.endswith(".") and trap.meaning for trap in TRAPS)
    assert len({trap.name for trap in TRAPS}) == len(TRAPS)


@pytest.mark.parametrize(("release", "expected"), [("6.14.9", True), ("6.15.0", False)])
def test_a_pods_view_on_an_old_kernel_can_crash_it(release: str, expected: bool) -> None:
    port = make_port("mlx5_0", source=None, problem="no file of this port counts bytes.")
    facts = make_facts(
        [port],
        tree={"folders": {port.id: Folders()}, "shared": ("mlx5_0",)},
        machine={"kernel": release},
        no_sampling="no port has byte counters",
    )
    assert any("crash the kernel" in finding.sentence for finding in troubles(facts)) is expected


def test_cached_counters_are_told_as_a_trap_that_is_taken_care_of() -> None:
    facts = make_facts([make_port("rdmap0", source=HW_SOURCE, identity={"driver": "efa"})])
    assert any("refreshes one clock tick after their lifespan" in text for text in sentences(facts, "kernel"))


def test_a_kernel_without_traps_says_so() -> None:
    assert sentences(make_facts(machine={"kernel": "5.15.0"}), "kernel") == [
        ": Linux 5.15.0 has no known problem that matters here."
    ]


def test_a_clock_that_is_not_synchronised_is_a_warning() -> None:
    finding = only_trouble(make_facts(machine={"clock": ClockState(False, 16.0)}))
    assert finding.sentence == "The wall clock is not synchronised."
    assert "chrony" in finding.advice


def test_a_synchronised_clock_tells_its_own_bound() -> None:
    assert sentences(make_facts(), "clock") == [": The wall clock is synchronised, with an error of at most 2 ms."]


def test_a_clock_that_may_not_be_asked_is_no_fault() -> None:
    facts = make_facts(machine={"clock": None})
    assert sentences(facts, "clock") == [": The state of the kernel's clock is not accessible."]


def test_a_step_of_the_clock_during_the_look_is_a_warning() -> None:
    assert only_trouble(make_facts(sampling={"clock_steps": 1})).sentence == (
        "The wall clock was stepped 1 time while doctor was running."
    )


def test_a_quota_is_a_warning_with_the_throttling() -> None:
    finding = only_trouble(make_facts(sampling={"quota_cpus": 0.2, "throttled_periods": 7}))
    assert finding.sentence == "The sampler's cgroup has a quota of 0.2 CPUs and has been throttled in 7 periods."
    finding = only_trouble(make_facts(sampling={"quota_cpus": 0.2, "throttled_periods": None}))
    assert finding.sentence == "The sampler's cgroup has a quota of 0.2 CPUs."


def test_without_a_look_the_quota_is_that_of_doctor() -> None:
    facts = make_facts(no_sampling="sampling was not requested", options={"sample": False}, machine={"quota_cpus": 1.5})
    assert only_trouble(facts).sentence == "The sampler's cgroup has a quota of 1.5 CPUs."
    facts = make_facts(
        no_sampling="sampling was not requested", options={"sample": False}, machine={"quota_cpus": None}
    )
    assert troubles(facts) == []


def test_a_scheduler_that_was_refused_is_a_warning() -> None:
    health = SamplerHealth(scheduler_requested="fifo", scheduler_actual="other")
    finding = only_trouble(make_facts(sampling={"health": health}))
    assert finding.sentence == "sampler.scheduler=fifo was refused; the sampler runs as other."
    assert "CAP_SYS_NICE" in finding.advice


def test_timers_that_stayed_slack_are_a_warning() -> None:
    assert only_trouble(make_facts(sampling={"timer_slack_ns": 50_000})).sentence == (
        "The sampler's timers may fire up to 50 µs late (timer slack)."
    )


def test_without_a_look_the_scheduler_was_not_tried() -> None:
    facts = make_facts(no_sampling="sampling was not requested", options={"sample": False, "scheduler": "fifo"})
    assert sentences(facts, "scheduler") == [": sampler.scheduler is fifo; not tested without sampling."]


def test_a_sampler_that_is_not_pinned_tells_where_the_rails_are() -> None:
    assert sentences(make_facts(), "affinity") == [
        ": The sampler is not pinned to a CPU; the rails are on NUMA node 0."
    ]
    assert sentences(make_facts((), no_sampling="no port has byte counters"), "affinity") == [
        ": The sampler is not pinned to a CPU."
    ]


def pinned(cpu: int, actual: str, **machine: object) -> Facts:
    return make_facts(
        options={"cpu": cpu},
        sampling={"health": SamplerHealth(cpu_requested=str(cpu), cpu_actual=actual)},
        machine=machine,
    )


def test_a_cpu_that_may_not_be_used_is_a_warning() -> None:
    for facts in (pinned(9, "9"), pinned(2, "")):
        assert "is not a CPU that this process may use" in only_trouble(facts).sentence


def test_a_cpu_far_from_every_rail_is_a_warning() -> None:
    finding = only_trouble(pinned(9, "9", allowed_cpus=frozenset(range(16))))
    assert (finding.sentence, finding.advice) == ("9 is not local to any rail.", "Choose one of 0-3.")


def test_a_cpu_near_a_rail_is_fine() -> None:
    assert troubles(pinned(2, "2")) == []


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("a-b,2", {2}), ("1-x", set())],
)
def test_a_list_of_cpus_is_read(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize(
    ("space", "level", "words"),
    [
        (replace(RING, writable=False), Level.WARN, "/run/ibpulse is not writable for this user."),
        (replace(RING, free_bytes=5_000_000), Level.FAIL, "needs 12 MB, but /run/ibpulse has only 5 MB free."),
        (replace(RING, needed_bytes=10**12, free_bytes=None), Level.WARN, "needs 1 TB of memory"),
        (replace(RING, type="ext4"), Level.WARN, "/run/ibpulse is on ext4, not in memory."),
    ],
)
def test_a_ring_that_has_no_good_place_is_said(space: Space, level: Level, words: str) -> None:
    finding = only_trouble(make_facts(machine={"spaces": (space,)}))
    assert finding.level is level
    assert words in finding.sentence


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Space("capture.dir", "/captures", 5 * 10**8, 10**8, True, "ext4"), "capture.min-free reserves 500 MB"),
        (Space("capture.dir", "/captures", 5 * 10**8, 10**10, False, "ext4"), "is not writable for this user"),
    ],
)
def test_captures_without_a_place_are_a_warning_and_no_more(space: Space, words: str) -> None:
    finding = only_trouble(make_facts(machine={"spaces": (space,)}))
    assert finding.level is Level.WARN
    assert words in finding.sentence
    assert finding.meaning == "No capture is written. Sampling and metrics are not affected."


def test_a_ring_on_disk_is_fine_for_a_simulated_fabric() -> None:
    facts = make_facts(machine={"spaces": (replace(RING, type="ext4"),)}, tree={"mount": Mount("/", "ext4", False)})
    assert troubles(facts) == []


def test_files_that_are_kept_may_lie_on_disk() -> None:
    assert troubles(make_facts(machine={"spaces": (replace(RING, setting="capture.dir", type="ext4"),)})) == []


def test_a_running_daemon_may_write_where_doctor_may_not() -> None:
    assert (
        troubles(make_facts(machine={"spaces": (replace(RING, writable=False),)}, sampling={"by_daemon": True})) == []
    )


@pytest.mark.parametrize(
    ("web", "by_daemon", "words"),
    [
        (WebPort("free"), False, ":10055 is free."),
        (WebPort("ibpulse"), False, ":10055 is used by ibpulse."),
        (WebPort("other"), True, "is in use, probably by the daemon that runs here."),
        (None, False, "could not be checked in time."),
    ],
)
def test_a_web_address_that_can_be_used_is_fine(web: WebPort | None, by_daemon: bool, words: str) -> None:
    facts = make_facts(machine={"web": web}, sampling={"by_daemon": by_daemon})
    assert words in sentences(facts, "web")[0]
    assert troubles(facts) == []


def test_a_daemon_with_internal_errors_is_a_warning() -> None:
    finding = only_trouble(make_facts(machine={"web": WebPort("ibpulse", "plan and fabric")}))
    assert (finding.level, finding.sentence) == (
        Level.WARN,
        "the daemon at :10055 has internal errors in plan and fabric.",
    )


@pytest.mark.parametrize(
    ("web", "words"),
    [
        (WebPort("other"), "cannot listen on :10055: another program uses it."),
        (WebPort("refused", "Permission denied"), "cannot listen on :10055: Permission denied."),
    ],
)
def test_a_web_address_that_cannot_be_used_is_a_failure(web: WebPort, words: str) -> None:
    finding = only_trouble(make_facts(machine={"web": web}))
    assert (finding.level, finding.sentence) == (Level.FAIL, words)
