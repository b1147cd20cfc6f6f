"""Several simulated nodes in one process: their plan, their trees, and their common pace."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ibpulse.workbench.simulate import tree
from ibpulse.workbench.simulate.fleet import SimulatedFleet, different_clocks, plan_nodes
from ibpulse.workbench.simulate.pacing import Pace, Slips, run_together
from ibpulse.workbench.simulate.workloads import Constant, Square

SECOND = 1_000_000_000
MS = 1_000_000
TICK = 10 * MS
START = 1_700_000_000 * SECOND


class Stalling:
    """A clock of a process that is often late, and the instants that its trees show: (due, true instant)."""

    def __init__(self, seed: int) -> None:
        self.now, self.left = START, 3000
        self.rng = np.random.default_rng(seed)
        self.shown: dict[int, list[tuple[int, int]]] = {}

    def is_over(self) -> bool:
        self.left -= 1
        return self.left < 0

    def pause(self, seconds: float) -> None:
        late = int(self.rng.integers(8 * TICK)) if self.rng.random() < 0.05 else int(self.rng.integers(MS))
        self.now += round(seconds * SECOND) + late

    def pace(self, slips: Slips, offset_ns: int) -> Pace:
        shown = self.shown[offset_ns] = []

        def show(at_ns: int, line_ns: int) -> int:
            due = -(-(self.now + offset_ns) // TICK) * TICK
            shown.append((due - offset_ns, at_ns - offset_ns))
            self.now += 300_000
            return at_ns

        return Pace(show, TICK, wall=lambda: self.now + offset_ns, monotonic=lambda: self.now - START, slips=slips)


@pytest.mark.parametrize("seed", range(5))
def test_nodes_of_a_job_slip_together(seed: int) -> None:
    process, slips = Stalling(seed), Slips()
    offsets = list(different_clocks(plan_nodes(8)).values())
    paces = [process.pace(slips, offset) for offset in offsets]
    run_together(paces, process.pause, process.is_over, lambda: process.now - START)
    assert slips.total_ns > SECOND
    behind = [due - at for due, at in (shown[-1] for shown in process.shown.values())]
    # the last slip may be younger than the last step of a tree
    assert min(behind) > slips.behind_ns - 9 * TICK
    # at the end of a quiet time, all are behind by the same
    process.left, process.rng = 200, np.random.default_rng(0)
    process.pause = lambda seconds: setattr(process, "now", process.now + round(seconds * SECOND))  # type: ignore[method-assign]
    run_together(paces, process.pause, process.is_over, lambda: process.now - START)
    behind = [due - at for due, at in (shown[-1] for shown in process.shown.values())]
    assert behind == pytest.approx([slips.behind_ns] * 8, abs=10)
    for shown in process.shown.values():
        steps = np.diff([at for _, at in shown])
        assert steps.min() >= 0
        assert steps.max() <= TICK


def test_clock_offsets_reach_50_ms() -> None:
    offsets = list(different_clocks(plan_nodes(8)).values())
    assert all(100_000 <= abs(offset) <= 50 * MS for offset in offsets)
    phases = sorted(offset % TICK for offset in offsets)
    assert min(np.diff([*phases, phases[0] + TICK])) >= MS
    assert list(different_clocks(plan_nodes(10)).values()) == [*offsets, *offsets[:2]]


@pytest.mark.parametrize(("count", "straggler"), [(2, "node2"), (3, "node3"), (8, "node3"), (64, "node3")])
def test_one_node_is_the_straggler(count: int, straggler: str) -> None:
    nodes = plan_nodes(count)
    assert len({node.name for node in nodes}) == count
    assert [node.name for node in nodes if node.straggler] == [straggler]
    assert (nodes[-1].rack, nodes[-1].leaf) == (f"rack{-(-count // 2)}", f"leaf{-(-count // 4)}")


def test_all_trees_have_the_same_job_and_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SETTLE_SECONDS", 0)
    with closing(SimulatedFleet(tmp_path, plan_nodes(3), Constant(8e9), 0, 2, TICK, management=True)) as fleet:
        fleet.build()
        files = [tmp_path / f"node{number}" for number in (1, 2, 3)]
        documents = [json.loads((each / "jobs/1001.json").read_text()) for each in files]
        assert documents[0] == documents[1] == documents[2]
        assert len(documents[0]["gpus"]) == 2
        devices = {each.name for each in (files[2] / "class/infiniband").iterdir()}
        assert devices == {"mlx5_0", "mlx5_1", "mlx5_an0"}
        counters = [each / "class/infiniband/mlx5_1/ports/1/counters/port_rcv_data" for each in files]
        before = [int(each.read_text()) for each in counters]
        fleet.run(lambda: all(int(each.read_text()) > old for each, old in zip(counters, before, strict=True)))


def test_node_leaves_and_rejoins_the_job(tmp_path: Path) -> None:
    nodes = plan_nodes(2, {"node1": 3 * MS, "node2": -48 * MS})
    with closing(SimulatedFleet(tmp_path, nodes, Square(), 0, 2, TICK)) as fleet:
        fleet.build()
        leaving, staying = fleet.fabrics
        at = fleet.start_ns + 600 * MS

        def show(true_ns: int) -> list[list[int]]:
            words = []
            for fabric, node in zip((leaving, staying), nodes, strict=True):
                fabric.write(true_ns + node.clock_offset_ns)
                folder = fabric.directory / "class/infiniband/mlx5_1/ports/1/counters"
                words.append([int((folder / name).read_text()) for name in ("port_xmit_data", "port_rcv_data")])
            return words

        def grown(begin_ns: int) -> list[list[int]]:
            before = np.array(show(begin_ns))
            return (np.array(show(begin_ns + 600 * MS)) - before).tolist()

        together = grown(at)
        leaving.faults_file.write_text('{"workload": "idle"}')
        alone = grown(at + SECOND)
        silent = show(at + 1700 * MS)[0]
        leaving.faults_file.write_text("{ }")
        assert show(at + 1990 * MS)[0] == silent
        again = grown(at + 2 * SECOND)
    for both in (together, again):
        assert both[0] == pytest.approx(both[1][::-1], abs=2)
    assert alone[0] == [0, 0]
    assert min(alone[1]) > 0
