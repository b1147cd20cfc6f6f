"""Recording and replaying as a user does: from sysfs, from a daemon, killed, refused, and there and back."""

from __future__ import annotations

import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ibpulse.errors import RecordingError
from ibpulse.recordings import Recording, load
from ibpulse.reports.run import Run, describe_run
from ibpulse.reports.span import Moment, ReportOptions
from ibpulse.simulate.fsdp import DENSE
from ibpulse.simulate.timeline import Schedule, Truth
from tests.running import Running, eventually

# wide enough that a writer on a busy machine is in time
INTERVAL = "50ms"
TICK_NS = 50_000_000
SECOND_NS = 1_000_000_000
SHOWN = "shown"
MANAGEMENT = 3


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ibpulse", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ibpulse(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ibpulse", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def wait_for_ticks(path: Path, ticks: int) -> None:
    """Wait until a recording that grows has so many samples."""

    def has_them() -> bool:
        try:
            return load(path).ticks >= ticks
        except RecordingError:
            return False

    eventually(has_them, 60)


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A directory on tmpfs: what a tree is written to must not wait for a disk."""
    with tempfile.TemporaryDirectory(prefix="ibpulse-test-", dir="/dev/shm") as name:
        yield Path(name)


# `ibpulse simulate` with a beginning that the test knows; it writes when it showed which instant of the schedule
SIMULATOR = """
import sys
import time
from pathlib import Path
from ibpulse.commands.simulate import stop_on_signals
from ibpulse.simulate.fabric import SimulatedFabric
from ibpulse.simulate.fsdp import DENSE
from ibpulse.simulate.timeline import Schedule

class Told(SimulatedFabric):
    def advance(self, at_ns, line_ns):
        shown = super().advance(at_ns, line_ns)
        print(time.time_ns(), shown, file=told, flush=True)
        return shown

start_ns = int(sys.argv[2])
with open(sys.argv[4], "w") as told:
    fabric = Told(Path(sys.argv[1]), Schedule(DENSE, rails=3, start_ns=start_ns), int(sys.argv[3]), management=True)
    fabric.build(start_ns)
    fabric.run(stop_on_signals())
"""


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    """A dense run on three rails."""
    return Schedule(DENSE, rails=3, start_ns=time.time_ns())


@pytest.fixture(scope="module")
def tree(memory: Path, schedule: Schedule) -> Iterator[Path]:
    """The schedule on its rails, and a management port."""
    directory = memory / "tree"
    arguments = (str(directory), str(schedule.start_ns), str(TICK_NS), str(memory / SHOWN))
    process = subprocess.Popen([sys.executable, "-c", SIMULATOR, *arguments])
    eventually((directory / "class/infiniband/mlx5_an0").exists)
    yield directory
    process.terminate()
    process.wait(timeout=10)


@pytest.fixture(scope="module")
def recorder(memory: Path, tree: Path) -> subprocess.Popen[str]:
    """Who records eight seconds of this node, while the daemon starts."""
    return start("record", str(memory / "node.parquet"), "--duration=8s", *sampling(tree))


@pytest.fixture(scope="module")
def daemon(memory: Path, tree: Path, recorder: subprocess.Popen[str]) -> Iterator[Running]:
    with Running(tree, memory / "ring", interval=INTERVAL) as running:
        yield running


@pytest.fixture(scope="module")
def recorded(memory: Path, recorder: subprocess.Popen[str]) -> Path:
    """Eight seconds of this node."""
    path = memory / "node.parquet"
    out, err = recorder.communicate(timeout=60)
    assert recorder.returncode == 0, err
    assert re.fullmatch(rf"{path}: 8.0s of 4 ports, 160 samples per port, .* % captured, .* kB\n", out)
    assert list(memory.glob("node.parquet*")) == [path]
    return path


def sampling(tree: Path) -> tuple[str, str]:
    return f"--path.sysfs={tree}", f"--sampler.interval={INTERVAL}"


def active_part(recording: Recording) -> Recording:
    """From the first tick at which the rails moved something to the last."""
    rails = [row for row, port in enumerate(recording.meta.ports) if port.rail]
    active = np.flatnonzero(np.nan_to_num(recording.bytes_per_second[rails]).sum(axis=(0, 1)) > 0.1e9)
    return recording.cut(active[0], active[-1] + 1)


def moved_bytes(recording: Recording) -> np.ndarray:
    """(ports, 2, ticks)."""
    return recording.bytes_per_second * recording.seconds


def captured(recording: Recording) -> int:
    """Ticks without missing data."""
    return int((~np.isnan(recording.bytes_per_second).any(axis=(0, 1))).sum())


def busy_mean(recording: Recording) -> float:
    """Mean bytes of the rails in a tick, without the pauses of a simulator, in which no port moves anything."""
    moved = moved_bytes(recording)
    return float(np.nanmean(moved[:MANAGEMENT, :, moved[MANAGEMENT].sum(axis=0) > 0]))


def again_in(before: Recording, after: Recording) -> tuple[np.ndarray, Recording]:
    """Which ticks of `before` come again in `after`, and `before` with the bytes of those.

    The order is the same, but on a busy machine a replay pauses, and samples are missed.
    """
    first, second = moved_bytes(before), moved_bytes(after)
    keys = [
        [tuple(np.rint(tick / 65_536)) for tick in moved.reshape(-1, moved.shape[2]).T] for moved in (first, second)
    ]
    found = np.full(first.shape, np.nan)
    for mine, other, length in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
        found[:, :, mine : mine + length] = second[:, :, other : other + length]
    same = np.isclose(found, first, rtol=1e-6, atol=8).all(axis=(0, 1))
    seconds = np.where(np.isnan(found), 0.0, TICK_NS / SECOND_NS)
    return same, replace(before, bytes_per_second=found * (SECOND_NS / TICK_NS), seconds=seconds)


def in_time(recording: Recording, ticks: np.ndarray) -> Recording:
    """What the counters rose by at these ticks, in exactly one interval each; holes at all others.

    A file's counter does not move while a read is late, so its rate is that of another time. All begin at one instant,
    because bins of several ticks begin with whole seconds. Nothing is uncertain: a read that may have been late would
    count less in the peak.
    """
    rates = np.where(ticks, recording.bytes_per_second * recording.seconds * (SECOND_NS / TICK_NS), np.nan)
    seconds = np.where(np.isnan(rates), 0.0, TICK_NS / SECOND_NS)
    return replace(recording, start_ns=SECOND_NS, bytes_per_second=rates, seconds=seconds, steps=None)


def report(recording: Recording, **options: Any) -> Run:
    """What `ibpulse report` says of it."""
    return describe_run(Path("a.parquet"), recording, ReportOptions(timescales_ns=(TICK_NS,), **options))


def test_a_daemon_is_recorded_as_it_sampled(daemon: Running, memory: Path) -> None:
    path = memory / "daemon.parquet"
    done = ibpulse("record", str(path), "--duration=4s", f"--url={daemon.url}")
    assert done.returncode == 0, done.stderr
    recording = load(path)
    assert (recording.ticks, recording.meta.reason, recording.meta.source) == (80, f"from {daemon.url}", "record")
    assert recording.meta.host == platform.node()
    assert recording.meta.ports[0].identity.guid != ""
    check_against_window(recording, daemon)
    seconds = np.unique(recording.seconds)
    assert set(seconds) <= {0.0, 0.05}


def check_against_window(recording: Recording, daemon: Running) -> None:
    """The recording has the samples, and lacks those, that the daemon's window has and lacks."""
    # the mean of one sample is its rate
    span = {"from": recording.start_ns // 10**6, "to": recording.end_ns // 10**6, "format": "json", "statistic": "mean"}
    series = daemon.ask("/api/v1/window", **span).json()["series"]
    for row, port in enumerate(recording.meta.ports):
        for way, direction in enumerate(("transmit", "receive")):
            told = next(one["values"] for one in series if (one["port"], one["direction"]) == (str(port.id), direction))
            np.testing.assert_allclose(
                recording.bytes_per_second[row, way], np.array(told, dtype=float), rtol=1e-6, equal_nan=True
            )


def test_a_node_is_recorded_with_what_its_ports_are(recorded: Path) -> None:
    recording = load(recorded)
    assert (recording.ticks, recording.meta.interval_ns, recording.meta.complete) == (160, TICK_NS, True)
    assert (recording.meta.source, recording.meta.host != "") == ("record", True)
    ports = recording.meta.ports
    assert [str(port.id) for port in ports] == ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_an0:1"]
    assert [port.rail for port in ports] == [True, True, True, False]
    assert ports[0].rate_bytes_per_second == 50e9
    assert (ports[0].identity.hca_type, ports[0].source, ports[0].state) == ("MT4129", "port_data", "ACTIVE")
    age_seconds = time.time() - recording.end_ns / 1e9
    assert -1 < age_seconds < 120
    # a management port moves 12 MB/s, unless the simulator pauses on a busy machine
    np.testing.assert_allclose(np.nanmedian(moved_bytes(recording)[MANAGEMENT]), 12e6 * TICK_NS / SECOND_NS, rtol=0.05)


def test_the_report_of_a_recording_agrees_with_what_was_sent(recorded: Path, schedule: Schedule) -> None:
    recording = load(recorded)
    # a sample is read at a multiple of the interval or a little later, when the next instant is not yet shown
    edges_ns = recording.start_ns + TICK_NS * np.arange(-1, recording.ticks)
    whole_lines = recorded.with_name(SHOWN).read_text().rpartition("\n")[0].splitlines()
    at_ns, shown_ns = np.array([line.split() for line in whole_lines], dtype=np.int64).T
    instants_ns = shown_ns[np.searchsorted(at_ns, edges_ns) - 1]
    sent = np.diff(schedule.cumulative_bytes(instants_ns), axis=0).transpose(1, 2, 0)
    moved = moved_bytes(recording)[:MANAGEMENT]
    in_place = np.isclose(moved, sent, rtol=1e-6, atol=8).all(axis=(0, 1))
    assert in_place[~np.isnan(moved).any(axis=(0, 1))].mean() > 0.9
    values = report(in_time(recording, in_place)).values
    rates = sent.sum(axis=(0, 1))[in_place] * (SECOND_NS / TICK_NS)
    truth = Truth(rates, TICK_NS / SECOND_NS)
    told = {
        "mean_bytes_per_second": truth.mean,
        "active_mean_bytes_per_second": truth.active_mean,
        "peak_bytes_per_second": truth.peak,
        "duty_cycle_ratio": truth.duty,
        "burstiness_cv_50ms": truth.cv,
    }
    assert {key: values[key] for key in told} == pytest.approx(told, rel=1e-3)


def test_a_daemon_that_is_gone_for_a_while_leaves_no_gap_that_its_ring_holds(tree: Path, memory: Path) -> None:
    path = memory / "restarted.parquet"
    with Running(tree, memory / "other", interval=INTERVAL) as running:
        address = running.url.removeprefix("http://")
        recorder = start("record", str(path), f"--url={running.url}")
        wait_for_ticks(path, 20)
        running.stop(signal.SIGKILL)
        killed_ns = time.time_ns()
        time.sleep(1)
        again = Running(tree, memory / "other", f"--web.listen-address={address}", interval=INTERVAL)
        with again:
            counting_ns = time.time_ns()
            eventually(lambda: load(path).end_ns > counting_ns + SECOND_NS, 60)
            recorder.send_signal(signal.SIGINT)
            _out, err = recorder.communicate(timeout=60)
            recording = load(path)
            check_against_window(recording, again)
    assert recorder.returncode == 0, err
    assert err.count("does not answer") == 1
    assert err.count("answers again") == 1
    holes = np.isnan(recording.bytes_per_second[0, 0])
    killed, counting = ((instant_ns - recording.start_ns) // TICK_NS for instant_ns in (killed_ns, counting_ns))
    # the sampler died with its daemon
    assert holes[killed:counting].sum() > 10
    # a busy machine reads some samples too late
    assert holes[:killed].mean() < 0.5
    assert holes[counting:].mean() < 0.5


def test_a_daemon_that_never_answers_is_named(memory: Path) -> None:
    done = ibpulse("record", str(memory / "x"), "--url=http://127.0.0.1:9")
    assert done.returncode == 1
    assert "http://127.0.0.1:9 does not answer: Connection refused; is `ibpulse serve` running there?" in done.stderr
    assert not list(memory.glob("x*"))


def test_a_kill_loses_at_most_a_second(tree: Path, memory: Path) -> None:
    path = memory / "killed.parquet"
    recorder = start("record", str(path), *sampling(tree))
    wait_for_ticks(path, 20)
    scratch = Path(re.findall(r"/dev/shm/ibpulse-sampling-\w+", Path(f"/proc/{recorder.pid}/maps").read_text())[0])
    recorder.kill()
    killed_ns = time.time_ns()
    recorder.communicate()
    recording = load(path)
    assert not recording.meta.complete
    assert recording.ticks > 10
    # one more for the ticks' own distance, on a machine that may be busy
    assert killed_ns - recording.end_ns < 2 * 10**9
    assert not path.exists()
    refused = ibpulse("record", str(path), "--duration=1s", *sampling(tree))
    assert refused.returncode == 1
    sentence = f"recording {path}.partial exists already; name another file, or replace it with --force"
    assert sentence in refused.stderr
    assert scratch.exists()
    again = ibpulse("record", str(path), "--duration=1s", "--force", *sampling(tree))
    assert again.returncode == 0, again.stderr
    assert load(path).ticks == 20
    # what the killed one left in memory is gone too
    assert not scratch.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_file(tree: Path, memory: Path, number: int) -> None:
    path = memory / f"signal-{number}.parquet"
    recorder = start("record", str(path), *sampling(tree))
    wait_for_ticks(path, 11)
    recorder.send_signal(number)
    out, err = recorder.communicate(timeout=20)
    assert (recorder.returncode, out.startswith(f"{path}: "), err) == (0, True, "")
    recording = load(path)
    assert recording.meta.complete
    assert recording.ticks > 10


def test_what_cannot_be_recorded_is_refused_with_the_way_out(tree: Path, recorded: Path, memory: Path) -> None:
    before = recorded.read_bytes()
    cases = {
        (str(recorded),): (1, f"recording {recorded} exists already; name another file, or replace it with --force"),
        (str(memory / "no/x"),): (
            1,
            "cannot be written: No such file or directory; free some space or choose another file",
        ),
        (str(memory / "x"), "--duration=0s"): (2, "flag --duration: '0s' is zero; give more than 0"),
        (str(memory / "x"), "--duration=5", "--until-idle=1x"): (2, "flag --duration: 5 has no unit; write"),
        (str(memory / "x"), f"--path.sysfs={memory / 'none'}"): (1, "this node has no ports with byte counters"),
    }
    for words, (code, sentence) in cases.items():
        done = ibpulse("record", *sampling(tree), *words)
        assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
    assert "flag --until-idle: '1x' is not a duration" in ibpulse("record", "x", "--until-idle=1x").stderr
    assert recorded.read_bytes() == before
    assert not list(memory.glob("x*"))


@pytest.fixture(scope="module")
def replayed(recorded: Path, memory: Path) -> tuple[Path, Path, dict[str, Any]]:
    """The recording replayed: recorded from the tree, and from a daemon, with six seconds of the daemon's summary."""
    directory, node, remote = (memory / name for name in ("replayed", "node-again.parquet", "daemon-again.parquet"))
    # a busy machine needs some seconds to start a daemon and two recorders, which have to see the first sample
    replay = start("replay", str(recorded), str(directory), "--delay=20s")
    assert replay.stdout is not None
    said = replay.stdout.readline() + replay.stdout.readline()
    assert f"4 ports, at 1x speed, in {directory}\n" in said
    assert f"read it with: ibpulse serve --path.sysfs={directory} --sampler.interval={INTERVAL}\n" in said
    until = ("--until-idle=1s", "--trim")
    recorder = start("record", str(node), *until, *sampling(directory))
    with Running(directory, memory / "third", interval=INTERVAL) as running:
        done = ibpulse("record", str(remote), *until, f"--url={running.url}")
        assert done.returncode == 0, done.stderr
        end_ns = load(remote).end_ns // SECOND_NS * SECOND_NS
        summary = running.ask("/api/v1/summary", **{"from": end_ns // 10**6 - 6000, "to": end_ns // 10**6}).json()
    assert replay.communicate(timeout=30)[0] == "end of the recording; the counters no longer change\n"
    assert recorder.wait(timeout=30) == 0
    return node, remote, summary


def test_a_replay_gives_the_same_report(recorded: Path, replayed: tuple[Path, Path, dict[str, Any]]) -> None:
    before, after = active_part(load(recorded)), load(replayed[0])
    for first, second in zip(before.meta.ports, after.meta.ports, strict=True):
        # where the GPUs are, only the machine knows
        assert second.identity == replace(first.identity, gpu="", gpu_distance="")
        assert (second.id, second.rail) == (first.id, first.rail)
    same, again = again_in(before, after)
    assert same.sum() > 0.8 * min(captured(before), captured(after))
    first, second = report(in_time(before, same)).values, report(in_time(again, same)).values
    numbers = {key for key, value in first.items() if isinstance(value, float)}
    assert len(numbers) > 20
    assert {key: second[key] for key in numbers} == pytest.approx({key: first[key] for key in numbers}, rel=0.01)
    assert all(second[key] == first[key] for key in first.keys() - numbers)


def test_a_daemon_says_of_a_replay_what_the_report_says(
    recorded: Path, replayed: tuple[Path, Path, dict[str, Any]]
) -> None:
    before, after, summary = active_part(load(recorded)), load(replayed[1]), replayed[2]
    whole, again = report(before).values, report(after).values
    keys = ("transmit_bytes_per_second", "receive_bytes_per_second", "duty_cycle_ratio", "fairness_ratio")
    # the sums, not single ticks: the daemon's reads may have been late, and on a busy machine the replay pauses
    longer = after.ticks / before.ticks
    assert [again[key] * longer for key in keys[:3]] == pytest.approx([whole[key] for key in keys[:3]], rel=0.02)
    assert again[keys[3]] == pytest.approx(whole[keys[3]], rel=0.01)
    begin_ns = summary["start_ms"] * 10**6 - after.start_ns + TICK_NS
    part = report(after, begin=Moment(begin_ns, True), end=Moment(begin_ns + 6 * SECOND_NS, True)).values
    told = [summary["node"][key] for key in (*keys[:3], "rail_fairness_ratio")]
    assert told == pytest.approx([part[key] for key in keys], rel=0.01)


def test_a_replay_ten_times_as_fast_moves_ten_times_as_much(recorded: Path, memory: Path) -> None:
    directory = memory / "fast"
    replay = start("replay", str(recorded), str(directory), "--speed=10", "--loop")
    assert replay.stdout is not None
    replay.stdout.readline()
    done = ibpulse("record", str(memory / "fast.parquet"), "--duration=3s", *sampling(directory))
    replay.send_signal(signal.SIGINT)
    out, _ = replay.communicate(timeout=10)
    assert (done.returncode, replay.returncode, out.splitlines()[-1]) == (0, 0, "stopped")
    slow, fast = (busy_mean(load(path)) for path in (recorded, memory / "fast.parquet"))
    assert fast == pytest.approx(10 * slow, rel=0.1)


def test_what_cannot_be_replayed_is_refused_with_the_way_out(recorded: Path, memory: Path) -> None:
    shutil.copy(recorded, memory / "copy.parquet")
    cases = {
        (str(memory / "none"), str(memory / "y")): (1, "cannot be read: No such file or directory; name another file"),
        (str(recorded), str(memory)): (1, "is not empty and holds no simulated fabric"),
        (str(recorded), "y", "--speed=0"): (2, "flag --speed: 0 is out of bounds; give 0.01 to 1000"),
        (str(recorded), "y", "--speed=nan", "--delay=x"): (2, "flag --delay: 'x' is not a duration"),
        (str(recorded), "y", "--interval=3ms"): (
            2,
            "flag --interval: '3ms' is not a sampling interval; give 1ms to 1s",
        ),
        (str(recorded), "y", "--interval=3"): (2, "flag --interval: 3 has no unit"),
    }
    for words, (code, sentence) in cases.items():
        done = ibpulse("replay", *words)
        assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
