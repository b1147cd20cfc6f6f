"""A capture on request, read by another program."""

from __future__ import annotations

from pathlib import Path

import duckdb

from tests.running import Running
from tests.smoke.parts import WAYS, becomes, bytes_of, later, plain_tree, set_counters, take_capture, totals


def test_a_capture_on_request_is_a_file_that_duckdb_reads(tmp_path: Path) -> None:
    tree = plain_tree(tmp_path / "sys")
    with Running(tree, tmp_path / "ring", "--capture.allow-unauthenticated=true") as daemon:
        before = totals(daemon, 0)
        for steps in (1, 2, 3, 4):
            set_counters(tree, 0, steps)
            becomes(lambda: totals(daemon, 0), later(before, steps))
        path = tmp_path / "captures" / take_capture(daemon, before="2m")
        assert daemon.ask(f"/api/v1/captures/{path.name}").content == path.read_bytes()
        assert daemon.stop() == 0
    for way in WAYS:
        moved = f"CAST({way}_bytes_per_second * {way}_seconds AS BIGINT)"
        with duckdb.connect() as database:
            rows = database.execute(f"SELECT DISTINCT device, {moved} FROM '{path}' WHERE {moved} IS NOT NULL")
            # a sample has a whole step or nothing, and one that was missed has none
            assert set(rows.fetchall()) == {("mlx5_0", 0), ("mlx5_0", bytes_of(1, way)), ("mlx5_1", 0)}
