"""The list of nodes of a gateway in virtual time."""

from __future__ import annotations

from pathlib import Path

from tests.virtual.fleet import Fleet


def test_the_gateway_lists_its_nodes_with_their_clocks_and_a_rail_that_goes_down(folder: Path) -> None:
    with Fleet(folder, 3, "--slow.interval=1s", rails=2, workload="dense") as fleet:
        fleet.nodes[2].clock.step(0.012)
        fleet.run(12)
        rows = [(row["node"], row["problem"], row["clock"]["offset_ms"], row["rails"]) for row in fleet.rows()]
        assert rows == [("node-0", "", 0, 2), ("node-1", "", 0, 2), ("node-2", "", 12, 2)]
        begin_ms = fleet.clock.time_ns() / 1e6
        fleet.nodes[0].fault({"link-flap": ["mlx5_1"]})
        fleet.run(8)
        (row,) = fleet.rows("node-0")
        assert 0 <= row["down_since_ms"] - begin_ms <= 1500
        assert (row["rails_down"], row["problem_text"]) == (["mlx5_1:1"], "mlx5_1:1 is not ACTIVE")
