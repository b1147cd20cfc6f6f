"""Two minutes of the fault campaign, and that it reports what it was not told about."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.faults.__main__ import run_campaign
from bench.faults.campaign import Campaign
from bench.faults.evidence import without
from bench.faults.exported_rates import ExportedRates
from bench.faults.fault_table import FAULTS
from bench.faults.load import Load
from bench.faults.plan import Episode, plan_episodes
from bench.faults.testbed import DOCUMENTS, prepared
from tests.running import Metrics, eventually

needs_fuse = pytest.mark.needs("fuse")
DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ibpulse-faults-", dir="/dev/shm") as scratch:
        yield Path(scratch)


@needs_fuse
@pytest.mark.timeout(600)
def test_two_minutes_of_faults_violate_nothing(place: Path) -> None:
    lines: list[str] = []
    outcome = run_campaign(place, FAULTS, seed=0, minutes=2, longest_seconds=2.0, say=lines.append)
    assert outcome.violations == [], "\n".join(lines)
    # nearly all of them on an idle machine, and fewer on one that takes longer for each
    assert len({one.occurrence.fault.name for one in outcome.happened}) >= 10
    # whatever was skipped says why
    assert all(outcome.impossible.values())
    assert sum(life.seconds for life in outcome.lives) > 60
    assert all(life.skipped_seconds == 0 for life in outcome.lives)


@needs_fuse
def test_a_fault_that_the_campaign_was_not_told_about_is_reported(place: Path) -> None:
    lines: list[str] = []
    with prepared(place) as testbed:

        def secret() -> Episode:
            testbed.fabric.set("mlx5_1", factor=10.0)
            testbed.fabric.set("mlx5_2", hang_seconds=60.0)
            testbed.point_jobs(DOCUMENTS, None)
            eventually(lambda: "0" not in load.listed[-1].begins)
            return ()

        with Load(testbed) as load:
            eventually(lambda: any("0" in one.begins for one in load.listed))
            campaign = Campaign(testbed, load, secret, seed=7, say=lines.append)
            campaign.run(10.0, warm_up_seconds=3.0)
        testbed.fabric.clear()
        campaign.stop()
    found = {violation.invariant: violation.value for violation in campaign.outcome.violations}
    assert found["no false rate"].startswith("mlx5_1: ") or found["no false rate"].startswith("node: ")
    assert found["sampled on"].startswith("mlx5_")
    assert any("VIOLATION of sampled on at " in line and "seed 7, calm: mlx5_" in line for line in lines)
    assert found["jobs kept"] == "0 not listed"
    # the daemon itself did nothing wrong
    assert set(found) == {"no false rate", "sampled on", "jobs kept"}
    assert any(line.startswith("none (calm)") for line in campaign.outcome.table())


class Flow:
    """Traffic of 1 GB/s on every port."""

    def true_bytes(self, begin: float, end: float) -> int:
        return round(1e9 * (end - begin))


def test_the_total_of_a_device_that_was_left_alone_is_compared_once_it_has_moved() -> None:
    rates = ExportedRates(Flow())

    def scrape(now: float, total: float) -> int:
        text = f'ibpulse_port_transmit_bytes_total{{device="mlx5_1",port="1"}} {total}\n'
        rates.compare_scrape(now, Metrics.parse(text), 1)
        return len(rates.excesses)

    assert [scrape(100.0, 5e9), scrape(101.0, 6e9)] == [0, 0]
    rates.rebase("mlx5_1")
    # sampled again 20 s later, with all that flowed
    assert [scrape(102.0, 6e9), scrape(103.0, 6e9), scrape(122.0, 26e9), scrape(123.0, 27e9)] == [0, 0, 0, 0]
    # what never flowed is found, beyond the age that a scrape may have
    assert scrape(124.0, 36e9) == 1


def test_the_seed_alone_decides_what_happens() -> None:
    first, again, other = (plan_episodes(FAULTS, DEVICES, seed, 5.0) for seed in (3, 3, 4))
    episodes = [first() for _ in range(100)]
    assert [again() for _ in range(100)] == episodes
    assert [other() for _ in range(100)] != episodes


def test_every_fault_comes_once_before_any_comes_again() -> None:
    following = plan_episodes(FAULTS, DEVICES, 1, 5.0)
    names: list[str] = []
    while len(names) < len(FAULTS):
        episode = following()
        names += [one.fault.name for one in episode]
        assert len(episode) <= 3
    assert len(set(names[: len(FAULTS)])) == len(FAULTS)


def test_an_episode_spares_a_device_and_shares_nothing() -> None:
    following = plan_episodes(FAULTS, DEVICES, 2, 5.0)
    sizes = set()
    for episode in (following() for _ in range(200)):
        hit = [one.device for one in episode if one.device]
        taken = [one.fault.resource for one in episode if one.fault.resource]
        assert "mlx5_0" not in hit
        assert len(set(hit)) == len(hit)
        assert len(set(taken)) == len(taken)
        assert all(0 <= one.begin <= 2 and 1 <= one.end - one.begin <= 5 for one in episode)
        sizes.add(len(episode))
    assert sizes == {1, 2, 3}


def test_the_parts_of_a_span_that_nothing_excuses() -> None:
    assert list(without((0.0, 10.0), [(8.0, 12.0), (2.0, 3.0), (2.5, 4.0), (-1.0, 1.0)])) == [(1.0, 2.0), (4.0, 8.0)]
    assert list(without((0.0, 1.0), [(0.0, 1.0)])) == []
    assert list(without((0.0, 1.0), [(1.0, 2.0)])) == [(0.0, 1.0)]
