"""Reads that take long, on a running daemon: the interval becomes longer where it must; nothing is lost silently."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fusefabric.client import FuseFabric, why_not
from tests.running import Metrics, Running, eventually

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not())]

RATE = 20e9
# a read may take a tenth of the time between two samples, and count at any moment of it
TOLERANCE = 0.2
SLOW, OTHERS = "mlx5_1", ("mlx5_0", "mlx5_2", "mlx5_3")
INTERVAL, LENGTHENED = "sampling_interval_seconds", "ibpulse_device_interval_lengthened"
READ_P99 = "ibpulse_device_read_p99_seconds"
UNTIL = "ibpulse_aggregated_until_timestamp_seconds"
# `ibpulse serve` that waits for some seconds where else it waits for minutes
HASTY = (
    "import sys; from ibpulse.cli import main; from ibpulse.sampler import adaptive; "
    "adaptive.PATIENCE_SECONDS = 5.0; sys.exit(main())"
)


class HastyDaemon(Running):
    """A daemon that soon believes that a device is quick again."""

    def __init__(self, tree: Path, ring_dir: Path) -> None:
        super().__init__(tree, ring_dir)
        self._command[1:3] = ["-c", HASTY]


@dataclass
class Look:
    """What a daemon says at one moment, with the last two seconds of its samples."""

    metrics: Metrics
    processes: int
    kept: dict[str, float] = field(default_factory=dict)

    @classmethod
    def at(cls, daemon: Running) -> Look:
        window = daemon.window("2s", direction="transmit")
        kept = {
            name.partition(":")[0]: sum(value is not None for value in values) / len(values)
            for name, values in window.items()
        }
        return cls(daemon.metrics(), len(daemon.sampler_pids()), kept)

    def intervals(self) -> set[float]:
        return set(self.metrics.find(f"ibpulse_port_{INTERVAL}").values())


@dataclass
class Story:
    """A device that is quick, slow and quick again: `lost` while nothing was done about it."""

    quick: Look
    lost: Look
    lengthened: Look
    again: Look
    window: dict[str, list[float | None]]
    log: str


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("adaptive")
    with (
        FuseFabric(folder / "sys", "constant", {"rate_bytes_per_second": RATE}, ports=4) as fabric,
        HastyDaemon(fabric.root, folder / "ring") as daemon,
    ):
        time.sleep(2.5)
        quick = Look.at(daemon)
        begun = time.monotonic()
        fabric.set(SLOW, delay_seconds=0.008)
        time.sleep(2.1)
        lost = Look.at(daemon)
        eventually(lambda: daemon.metrics().port(INTERVAL, SLOW) > 0.01, 60)
        time.sleep(4.0)
        # told once enough of its rarer reads are in
        eventually(lambda: daemon.metrics().find(READ_P99, device=SLOW))
        lengthened = Look.at(daemon)
        fabric.clear()
        # only once the machine has had time to spare for all of its patience
        eventually(lambda: daemon.metrics().port(INTERVAL, SLOW) == 0.01, 240)
        time.sleep(4.0)
        seconds = int(time.monotonic() - begun)
        yield Story(quick, lost, lengthened, Look.at(daemon), daemon.window(f"{seconds}s"), daemon.log())


def assert_no_false_rate(window: dict[str, list[float | None]]) -> None:
    for name, values in window.items():
        for index, value in enumerate(values):
            if value is not None:
                among = values[max(0, index - 3) : index + 4]
                assert value == pytest.approx(RATE, rel=TOLERANCE), f"{name}: sample {index}, among {among}"


def assert_no_false_peak(metrics: Metrics, ports: int) -> None:
    for way in ("transmit", "receive"):
        peaks = metrics.find(f"ibpulse_port_{way}_peak_bytes_per_second")
        assert peaks
        assert max(peaks.values()) < RATE * (1 + TOLERANCE)
    assert max(metrics.find("ibpulse_node_bandwidth_peak_bytes_per_second").values()) < 2 * ports * RATE * 1.2


def test_a_slow_device_costs_the_others_most_of_their_samples_until_it_is_sampled_less_often(story: Story) -> None:
    for device in OTHERS:
        assert story.lost.kept[device] < 0.5 * story.lengthened.kept[device]
        assert story.lengthened.kept[device] > 0.6 * story.quick.kept[device]
    assert story.lost.kept[SLOW] < 0.3
    assert story.lengthened.kept[SLOW] > 0.5


def test_it_alone_has_a_longer_interval_and_says_so(story: Story) -> None:
    metrics = story.lengthened.metrics
    assert metrics.port(INTERVAL, SLOW) >= 0.1
    assert metrics.value(LENGTHENED, device=SLOW) == 1
    # on a machine that is too busy for their reads others may have a longer one too, but not for this device's sake
    assert max(metrics.port(INTERVAL, device) for device in OTHERS) < 0.1
    assert metrics.value(READ_P99, device=SLOW) >= 0.008
    assert metrics.value("ibpulse_device_quarantined", device=SLOW) == 0
    assert story.lengthened.processes >= 2


def test_it_is_said_once_in_the_log(story: Story) -> None:
    said = [line for line in story.log.splitlines() if f"device {SLOW}" in line]
    assert sum("too long for sampling every 10 ms; sampling it every" in line for line in said) == 1
    assert said[-1].endswith("sampling it every 10 ms from now on")


def test_it_returns_to_the_interval_of_the_others_when_it_is_quick_again(story: Story) -> None:
    assert story.again.metrics.port(INTERVAL, SLOW) == 0.01
    assert story.again.metrics.find(LENGTHENED, device=SLOW) == {}
    assert story.again.kept[SLOW] > 0.5 * max(story.again.kept.values())


def test_no_change_of_the_interval_makes_a_false_rate_or_peak(story: Story) -> None:
    assert_no_false_rate(story.window)
    for look in (story.lost, story.lengthened, story.again):
        assert_no_false_peak(look.metrics, 4)


def test_the_samples_of_the_longer_interval_are_still_seen_after_it(story: Story) -> None:
    """All but those before the interval was lengthened, and a little at each change."""
    values = story.window[f"{SLOW}:1 transmit"][700:]
    rates = sum(value is not None for value in values)
    # had each stretch been taken for ticks of the shortest interval, a tenth of them at most would stand there
    assert rates / len(values) > 0.5


def test_the_totals_of_the_device_are_exact_over_all_of_it(story: Story) -> None:
    before, after = story.quick.metrics, story.again.metrics
    seconds = after.value(UNTIL) - before.value(UNTIL)
    for device in (SLOW, *OTHERS):
        moved = after.port("transmit_bytes_total", device) - before.port("transmit_bytes_total", device)
        assert moved == pytest.approx(RATE * seconds, rel=0.005)


def test_a_node_that_is_slow_as_a_whole_is_sampled_at_a_longer_interval(tmp_path: Path) -> None:
    with (
        FuseFabric(tmp_path / "sys", "constant", {"rate_bytes_per_second": RATE}, ports=6) as fabric,
        Running(fabric.root, tmp_path / "ring") as daemon,
    ):
        for device in fabric.devices:
            fabric.set(device.name, delay_seconds=0.0006)
        eventually(lambda: len(daemon.metrics().find(LENGTHENED)) == 6, 60)
        time.sleep(5.0)
        look = Look.at(daemon)
        # the same for all, unless this machine is so busy that one device seems slower than the others
        assert 0.01 < min(look.intervals()) <= max(look.intervals()) <= 0.1
        assert sorted(look.kept.values())[3] > 0.7
        assert_no_false_rate(daemon.window("5s"))
        assert_no_false_peak(look.metrics, 6)
        assert "which with the other devices is too long for sampling every 10 ms" in daemon.log()
