"""A recording as a tree: its ports, counters and links."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ibpulse.agent.config import load
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.errors import FabricError
from ibpulse.commands import VERBS
from ibpulse.commands.parser import parse
from ibpulse.commands.replay import describe
from ibpulse.core.events import Event
from ibpulse.core.model import PortIdentity, PortState
from ibpulse.core.recordings import RecordedPort, Recording
from ibpulse.workbench.simulate.fabric import START_WORDS
from ibpulse.workbench.simulate.replay import Player, Replay, counters_path
from tests.recordings.recordings import make_meta, make_recording
from tests.running import HANG_SECONDS
from tests.sysfs.machines import Machine
from tests.sysfs.role_nodes import NODES, RoleNode

INTERVAL_NS = 10_000_000
START_NS = 1_763_683_200 * 10**9
RECORDED_NS = 1_700_000_000 * 10**9
UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
DOWN = PortState("INIT", "Polling", False, 50e9, True)
HALF = PortState("ACTIVE", "LinkUp", True, 25e9, True)
IDENTITY = PortIdentity(
    link_layer="InfiniBand",
    rate="400 Gb/sec (4X NDR)",
    guid="b8ce:f603:0003:bb00",
    board="MT_0000000838",
    hca_type="MT4129",
    firmware="28.41.1000",
    driver="mlx5_core",
    pci_address="0000:3a:00.0",
    numa_node="1",
    netdev="ib3",
    kind="pf",
)
RAIL = RecordedPort("mlx5_3", 1, 50e9, True, True, "ACTIVE", "port_data", identity=IDENTITY)


@contextmanager
def replaying(
    directory: Path, *ports: RecordedPort, ticks: int = 4, events: tuple[Event, ...] = (), loop: bool = False
) -> Iterator[Replay]:
    """A replay of ports that move 4 kB a tick, built, with its first step one interval after `START_NS`."""
    shape = (len(ports), 2, ticks)
    meta = replace(make_meta(ports=1), ports=ports, events=events)
    recording = Recording(meta, RECORDED_NS, np.full(shape, 4e5), np.full(shape, 0.01))
    with playing(directory, recording, loop=loop) as replay:
        yield replay


@contextmanager
def playing(directory: Path, recording: Recording, speed: float = 1.0, loop: bool = False) -> Iterator[Replay]:
    """A replay of a recording, built, as `replaying`."""
    ports, ticks = recording.meta.ports, recording.ticks
    pieces = [recording.cut(first, first + 3) for first in range(0, ticks, 3)]
    player = Player(lambda: iter(pieces), len(ports), speed, loop)
    replay = Replay(directory, recording.meta, player, INTERVAL_NS, START_NS, speed)
    try:
        replay.build()
        yield replay
    finally:
        replay.close()
        player.close()


def counter(directory: Path, port: RecordedPort, name: str) -> int:
    return int((directory / counters_path(port) / name).read_text())


def test_the_identity_of_the_ports_comes_back(tmp_path: Path) -> None:
    management = RecordedPort(
        "mlx5_an0",
        1,
        12.5e9,
        rail=False,
        state="ACTIVE",
        identity=replace(
            IDENTITY,
            link_layer="Ethernet",
            rate="100 Gb/sec (4X EDR)",
            pci_address="0000:3b:00.2",
            netdev="eth0",
            hca_type="MT4126",
            kind="vf",
        ),
    )
    second = replace(RAIL, port=2)
    virtual = RecordedPort("rxe0", 1, 1.25e9, rail=False, identity=PortIdentity(link_layer="Ethernet", netdev="ens3"))
    ports = (RAIL, second, management, virtual)
    with replaying(tmp_path, *ports):
        found = Inventory(tmp_path, timeout_seconds=HANG_SECONDS).scan().ports
    assert [str(port.id) for port in found] == ["mlx5_3:1", "mlx5_3:2", "mlx5_an0:1", "rxe0:1"]
    assert Inventory(tmp_path, timeout_seconds=HANG_SECONDS).scan().simulated
    assert [port.identity for port in found[:3]] == [port.identity for port in ports[:3]]
    assert [port.rate_bytes_per_second for port in found] == [50e9, 50e9, 12.5e9, 1.25e9]
    assert [port.rail for port in found] == [True, True, False, False]
    assert all(port.active and port.source and port.source.name == "port_data" for port in found)
    assert (found[3].identity.pci_address, found[3].identity.netdev) == ("", "ens3")


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_printed_command_keeps_recorded_roles(node: RoleNode, tmp_path: Path) -> None:
    machine, tree = Machine(tmp_path / "node"), tmp_path / "replay"
    node.build(machine)
    ports = [
        RecordedPort.of(port, "port_data", 1)
        for port in Inventory(machine.root, timeout_seconds=HANG_SECONDS).scan().ports
    ]
    with replaying(tree, *ports):
        meta = replace(make_meta(), ports=tuple(ports))
        said = describe(tmp_path / "a.parquet", meta, Namespace(directory=tree, speed=1.0), INTERVAL_NS)
        words = said.rpartition("ibpulse serve ")[2].split()
        flags = parse(VERBS["serve"], words).flags
        roles = load(flags, {}).ports.roles
        found = Inventory(tree, roles=roles, timeout_seconds=HANG_SECONDS).scan().ports
    assert {str(port.id): port.role for port in found} == node.roles


@pytest.mark.parametrize(("state", "seen"), [("DOWN", "DOWN"), ("GONE", "DOWN"), ("INIT", "INIT"), ("ACTIVE", "DOWN")])
def test_a_port_that_was_down_is_down(tmp_path: Path, state: str, seen: str) -> None:
    with replaying(tmp_path, replace(RAIL, active=False, state=state)):
        found = Inventory(tmp_path, timeout_seconds=HANG_SECONDS).scan().ports[0]
    assert (found.active, found.state, found.rate_bytes_per_second) == (False, seen, None)


@pytest.mark.parametrize(("rate", "seen"), [(50e9, 50e9), (46.8e9, 46.8125e9), (None, None)])
def test_recording_without_identity_is_infiniband(tmp_path: Path, rate: float | None, seen: float | None) -> None:
    with replaying(tmp_path, RecordedPort("nic0", 1, rate)):
        found = Inventory(tmp_path, timeout_seconds=HANG_SECONDS).scan().ports[0]
    assert found.rate_bytes_per_second == seen
    assert (found.identity.link_layer, found.active, found.rail) == ("InfiniBand", True, True)


@pytest.mark.parametrize("name", ["../../etc", "a/b", ".", "..", "-x", "a b", "x\n", "é", "a" * 64])
def test_invalid_device_name_is_refused(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(FabricError, match="cannot be replayed: its device name is not a valid file name"),
        replaying(tmp_path, replace(RAIL, device=name)),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_is_hostile_in_an_identity_stays_text(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    bad = replace(IDENTITY, driver="../../x", netdev="../../y", pci_address="../../0000:3a:00.0", guid="../z")
    with replaying(tree, replace(RAIL, identity=bad)):
        found = Inventory(tree, timeout_seconds=HANG_SECONDS).scan().ports[0]
    assert (found.identity.driver, found.identity.pci_address, found.identity.guid) == ("", "", "../z")
    assert list(tmp_path.iterdir()) == [tree]
    assert {path.name for path in tree.iterdir()} == {"class", "devices", "ibpulse-simulated", "replay.json"}


def test_only_earlier_replays_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(FabricError, match="is not empty and holds no simulated fabric"), replaying(tmp_path, RAIL):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "mine").unlink()
    with replaying(tmp_path, RAIL):
        pass
    with replaying(tmp_path, replace(RAIL, device="mlx5_5")):
        assert [str(port.id) for port in Inventory(tmp_path, timeout_seconds=HANG_SECONDS).scan().ports] == ["mlx5_5:1"]


def test_counters_step_and_catch_up(tmp_path: Path) -> None:
    with replaying(tmp_path, RAIL) as replay:
        seen = [counter(tmp_path, RAIL, "port_xmit_data")]
        for ticks in (-100, 0, 1, 1, 3, 4, 9):
            replay.write(START_NS + ticks * INTERVAL_NS)
            seen.append(counter(tmp_path, RAIL, "port_xmit_data"))
        assert [words - START_WORDS[0] for words in seen] == [0, 0, 0, 1000, 1000, 3000, 4000, 4000]
        assert counter(tmp_path, RAIL, "port_rcv_data") == START_WORDS[1] + 4000


def change(sample: int, before: PortState | None, after: PortState | None, port: RecordedPort = RAIL) -> Event:
    time_ns = RECORDED_NS + sample * INTERVAL_NS + 1
    return Event(time_ns, "link-down", str(port.id), "", before=before, after=after)


def seen_at(replay: Replay, directory: Path, steps: int) -> list[tuple[str, bool, float | None]]:
    """The ports of the tree after so many steps: name, whether they are ACTIVE, and data rate."""
    replay.write(START_NS + steps * INTERVAL_NS)
    ports = Inventory(directory, timeout_seconds=HANG_SECONDS).scan().ports
    return [(str(port.id), port.active, port.rate_bytes_per_second) for port in ports]


def test_links_follow_the_samples(tmp_path: Path) -> None:
    events = (change(2, UP, DOWN), change(4, DOWN, HALF), change(6, HALF, UP))
    with replaying(tmp_path, RAIL, ticks=8, events=events) as replay:
        found = [seen_at(replay, tmp_path, steps)[0][1:] for steps in range(8)]
        up, down, half = (True, 50e9), (False, None), (True, 25e9)
        assert found == [up, up, up, down, down, half, half, up]
    folder = tmp_path / counters_path(RAIL) / ".."
    with replaying(tmp_path, RAIL, ticks=8, events=events) as replay:
        replay.write(START_NS + 3 * INTERVAL_NS)
        assert [(folder / name).read_text() for name in ("state", "phys_state")] == ["2: INIT\n", "2: Polling\n"]
        net = tmp_path / "class/net/ib3"
        assert [(net / name).read_text() for name in ("operstate", "speed")] == ["down\n", "400000\n"]


def test_device_exists_while_any_port_does(tmp_path: Path) -> None:
    second = replace(RAIL, port=2)
    events = (change(1, None, UP), change(2, None, UP, second), change(4, UP, None), change(5, UP, None, second))
    with replaying(tmp_path, RAIL, second, ticks=8, events=events) as replay:
        found = [len(seen_at(replay, tmp_path, steps)) for steps in range(8)]
    assert found == [0, 0, 2, 2, 2, 2, 0, 0]


LINE_WORDS = 125_000_000  # of 10 ms at 50 GB/s


def shown(directory: Path, replay: Replay, lines_ns: Iterable[int]) -> list[int]:
    """The increases of the received words with these times since the last read."""
    seen, at_ns = [counter(directory, RAIL, "port_rcv_data")], START_NS
    for line_ns in lines_ns:
        at_ns = replay.advance(at_ns + INTERVAL_NS, line_ns)
        seen.append(counter(directory, RAIL, "port_rcv_data"))
    return np.diff(seen).tolist()


def recorded(rates: Sequence[float], seconds: Sequence[float]) -> Recording:
    meta = replace(make_meta(ports=1), ports=(RAIL,))
    shape = np.ones((1, 2, 1))
    return Recording(meta, RECORDED_NS, shape * rates, shape * seconds)


def test_owed_bytes_come_later_within_the_line_rate(tmp_path: Path) -> None:
    recording = recorded([50e9, 50e9, 50e9, 0, 10e9], [0.014, 0.006, 0.013, 0.007, 0.01])
    with playing(tmp_path, recording) as replay:
        moved = shown(tmp_path, replay, [INTERVAL_NS] * 6)
    assert moved == [LINE_WORDS, LINE_WORDS, LINE_WORDS, int(0.3 * LINE_WORDS), LINE_WORDS // 5, 0]
    with playing(tmp_path, recorded([50e9, 50e9, 25e9, 0, 0], [0.01] * 5)) as replay:
        moved = shown(tmp_path, replay, [INTERVAL_NS, 6_000_000, INTERVAL_NS, INTERVAL_NS, INTERVAL_NS])
        assert moved == [LINE_WORDS, 6 * LINE_WORDS // 10, 9 * LINE_WORDS // 10, 0, 0]
        assert replay.over
    with playing(tmp_path, recorded([50e9, np.nan, 10e9, 10e9], [0.014, 0, 0.01, 0.01])) as replay:
        moved = shown(tmp_path, replay, [INTERVAL_NS] * 4)
    assert moved == [LINE_WORDS, -1, 6 * LINE_WORDS // 10, LINE_WORDS // 5]


def test_replay_pauses_while_bytes_are_owed(tmp_path: Path) -> None:
    with playing(tmp_path, recorded([50e9] * 4 + [0] * 4, [0.01] * 8)) as replay:
        lines = [INTERVAL_NS, 1_000_000, 1_000_000, INTERVAL_NS, INTERVAL_NS, INTERVAL_NS, INTERVAL_NS]
        moved = shown(tmp_path, replay, lines)
        assert moved == [LINE_WORDS, LINE_WORDS // 10, LINE_WORDS // 10, *[LINE_WORDS] * 2, 8 * LINE_WORDS // 10, 0]
        assert sum(moved) == 4 * LINE_WORDS
    with playing(tmp_path, recorded([50e9] * 4 + [0] * 4, [0.01] * 8)) as replay:
        at_ns = [START_NS]
        for line_ns in lines:
            at_ns.append(replay.advance(at_ns[-1] + INTERVAL_NS, line_ns))
        assert (np.diff(at_ns) // INTERVAL_NS).tolist() == [1, 1, 1, 0, 1, 1, 1]


@pytest.mark.parametrize("rate", [50e9, None])
def test_rate_above_line_is_cut_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rate: float | None
) -> None:
    recording = recorded([10e9, 180e9, 0, 0, 0], [0.01] * 5)
    meta = replace(recording.meta, ports=(replace(RAIL, rate_bytes_per_second=rate),))
    with playing(tmp_path, replace(recording, meta=meta)) as replay:
        replay.run(lambda: False)
    total = counter(tmp_path, RAIL, "port_rcv_data") - START_WORDS[1]
    said = [text for text in caplog.messages if "above the line rate" in text]
    if rate is None:
        assert (total, said) == (19 * LINE_WORDS // 5, [])
    else:
        assert total == 6 * LINE_WORDS // 5
        assert said == ["2 samples of the recording are above the line rate; they are replayed at the line rate"]


START = np.tile(START_WORDS, (2, 1))


def whole(ticks: int, seed: int = 0) -> Recording:
    """A recording without missing data, and without rates above the line rate."""
    made = make_recording(ticks, seed=seed)
    good = ~np.isnan(made.bytes_per_second)
    rates, seconds = np.where(good, made.bytes_per_second % 50e9, 4e8), np.where(good, made.seconds, 0.01)
    return Recording(made.meta, made.start_ns, rates, seconds)


def cut(recording: Recording, ticks: int) -> Iterator[Recording]:
    for first in range(0, recording.ticks, ticks):
        yield recording.cut(first, first + ticks)


def played(recording: Recording, ticks_per_step: float, ticks_per_piece: int = 7) -> np.ndarray:
    """The counter values before the first step and after each: (steps + 1, ports, 2)."""
    player = Player(lambda: cut(recording, ticks_per_piece), 2, ticks_per_step)
    seen = [player.words.copy()]
    while not player.over:
        player.step()
        seen.append(player.words.copy())
    player.close()
    return np.array(seen)


@pytest.mark.parametrize("speed", [0.3, 0.5, 1.0, 1.7, 2.0, 10.0, 49.0, 1000.0])
def test_the_sum_is_the_same_at_any_speed(speed: float) -> None:
    recording = whole(50)
    words = played(recording, speed)
    assert len(words) - 1 == int(np.ceil(50 / speed))
    total = (recording.bytes_per_second * recording.seconds).sum(axis=2) / 4
    assert np.abs(words[-1] - START - total).max() <= 1
    assert (np.diff(words, axis=0) >= 0).all()


def test_missing_data_makes_counters_fall() -> None:
    rates = np.full((2, 2, 20), 4e5)
    rates[0, 1, 5:9] = np.nan
    recording = Recording(make_meta(), 0, rates, np.where(np.isnan(rates), 0.0, 0.01))
    steps = np.diff(played(recording, 1.0), axis=0)
    np.testing.assert_array_equal(np.delete(steps.reshape(20, 4), 1, axis=1), 1000)
    np.testing.assert_array_equal(steps[:, 0, 1], [1000] * 5 + [-1] * 4 + [1000] * 11)
    # a step with missing data is missing
    np.testing.assert_array_equal(np.diff(played(recording, 4.0), axis=0)[:, 0, 1], [4000, -1, -1, 4000, 4000])


def test_a_loop_restarts_and_never_ends() -> None:
    recording = whole(10)
    player = Player(lambda: cut(recording, 4), 2, 1.0, loop=True)
    for _ in range(35):
        player.step()
    assert not player.over
    total = (recording.bytes_per_second * recording.seconds).sum(axis=2)
    part = (recording.bytes_per_second * recording.seconds)[:, :, :5].sum(axis=2)
    assert np.abs(player.words - START - (3 * total + part) / 4).max() < 2
    player.close()
