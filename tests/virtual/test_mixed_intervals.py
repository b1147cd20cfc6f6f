"""A job whose nodes are sampled at different intervals: most of them decide, and the others are shown as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from ibpulse.workbench.simulate.workloads import Constant
from tests.virtual.fleet import Fleet, share
from tests.virtual.rates import RATE

JOB = "/api/v1/jobs/7"
SLOW = "node-2"


@pytest.fixture(scope="module")
def fleet(shared_folder: Path) -> Iterator[Fleet]:
    """Three nodes with one job; the last one has a sample each second."""
    flags = (share(shared_folder), "--slow.interval=1s")
    intervals = ("50ms", "50ms", "1s")
    with Fleet(shared_folder, 3, *flags, rails=1, workload=Constant(RATE), intervals=intervals) as made:
        made.run(8)
        made.view(f"{JOB}/stream")
        made.run(10)
        yield made


def test_batches_have_the_interval_of_most_nodes_and_the_others_follow(fleet: Fleet) -> None:
    (viewer,) = fleet.viewers
    rows = orjson.loads(viewer.events("rows")[-1])
    assert (rows["interval_ms"], rows["batch_ms"]) == (50, 50)
    names = [row["row"] for row in rows["rows"]]
    known: dict[str, set[int]] = {name: set() for name in names}
    for batch in map(orjson.loads, viewer.events("batch")):
        for place, name in enumerate(names):
            for number, value in enumerate(batch["megabytes_per_second"][2 * place]):
                if value is not None:
                    assert value == pytest.approx(RATE / 1e6, abs=1)
                    known[name].add(batch["start_ms"] + 50 * number)
    for times in known.values():
        # each of the last seconds that all nodes have sent
        assert set(range(min(known[SLOW]), max(known[SLOW]), 50)) <= times
    assert max(known["node-0"]) - max(known[SLOW]) <= 6000
    assert len(known[SLOW]) > 100
