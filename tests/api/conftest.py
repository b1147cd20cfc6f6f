from __future__ import annotations

from collections.abc import Iterator

import pytest

from ibpulse.core.recordings import save
from ibpulse.workbench.simulate.workloads import make_workload
from tests.api.places import Places, in_thread, of_node
from tests.reports.recordings import play


@pytest.fixture(scope="package")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("api")
    recording = play(make_workload("dense"), 4.0)
    save(folder / "run.parquet", recording)
    for number in (1, 2):
        place = folder / "dataset" / f"node=gpu-{number}"
        place.mkdir(parents=True)
        save(place / "run.parquet", of_node(recording, f"gpu-{number}"))
    with in_thread(folder / "node") as daemon:
        yield Places(daemon.url, folder / "run.parquet", folder / "dataset")
