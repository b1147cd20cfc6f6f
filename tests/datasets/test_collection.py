"""Captures and recordings become a dataset: cut at hours, each once, and the same bytes from all workers."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from distributed import LocalCluster

from ibpulse.base.errors import DatasetError
from ibpulse.cli import main
from ibpulse.core.recordings import concatenate, load, save
from ibpulse.workbench.fleet.collection import CollectionResult, collect_files, open_scheduler, open_workers
from ibpulse.workbench.fleet.dataset import FILES, RAW, STEPS, DatasetStore, Part
from tests.datasets.known_traffic import INTERVAL_NS, START_NS, Node, Pipeline, save_nodes
from tests.recordings.recordings import make_recording

HOUR_NS = 3_600 * 10**9


def collect(place: Path, *files: Path, computing: Executor | None = None, **wanted: Any) -> CollectionResult:
    store = DatasetStore(str(place))
    store.begin()
    with ThreadPoolExecutor(1) as thread:
        return collect_files(store, files, thread, computing or thread, **wanted)


def digests(place: Path) -> dict[str, str]:
    files = [path for path in place.rglob("*.parquet") if path.is_file()]
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    nodes = [Node(f"node{number}", (Pipeline((0, 1), late=0.002 * number),)) for number in range(3)]
    return save_nodes(tmp_path_factory.mktemp("files"), *nodes)


@pytest.mark.real("process")
def test_processes_and_dask_write_the_same_bytes(tmp_path: Path, files: list[Path]) -> None:
    result = collect(tmp_path / "thread", *files)
    assert (len(result.written), result.problems) == (3, [])
    with open_workers(2) as processes:
        collect(tmp_path / "processes", *files, computing=processes)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        open_scheduler(cluster.scheduler_address) as workers,
    ):
        collect(tmp_path / "dask", *files, computing=workers)
    once = digests(tmp_path / "thread")
    assert len(once) == 3 * 5
    assert digests(tmp_path / "processes") == once == digests(tmp_path / "dask")


def test_silent_schedulers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibpulse.workbench.fleet.collection.CONNECT_SECONDS", 0.1)
    with (
        pytest.raises(DatasetError, match=r"the scheduler tcp://127\.0\.0\.1:1 does not answer"),
        open_scheduler("tcp://127.0.0.1:1"),
    ):
        pass


def test_files_are_cut_at_hours_without_loss(tmp_path: Path) -> None:
    recording = make_recording(1000, start_ns=START_NS + HOUR_NS - 300 * INTERVAL_NS, host="gpu 1/a")
    save(tmp_path / "a.parquet", recording)
    result = collect(tmp_path / "set", tmp_path / "a.parquet", job="42")
    store = DatasetStore(str(tmp_path / "set"))
    parts = [Part("42", "gpu 1/a", recording.start_ns), Part("42", "gpu 1/a", START_NS + HOUR_NS)]
    assert sorted(one.part.start_ns for one in result.written) == [part.start_ns for part in parts]
    raw = [load(path) for part in parts if (path := store.local_path(RAW, part))]
    assert [each.ticks for each in raw] == [300, 700]
    assert [part.path(RAW).split("/")[3] for part in parts] == ["hour=00", "hour=01"]
    whole = np.concatenate([each.bytes_per_second for each in raw], axis=2)
    np.testing.assert_array_equal(whole, recording.bytes_per_second)
    assert concatenate([recording.cut(0, 300)]).steps is not None
    np.testing.assert_array_equal(raw[0].steps, recording.cut(0, 300).steps)


def test_spans_of_files_are_exact_to_the_sample(tmp_path: Path, files: list[Path]) -> None:
    span = START_NS + 10**9 + 1, START_NS + 3 * 10**9
    collect(tmp_path, files[0], span=span)
    store = DatasetStore(str(tmp_path))
    (part,) = store.parts(RAW)
    path = store.local_path(RAW, part)
    kept = load(path)
    assert (kept.start_ns, kept.end_ns) == (START_NS + 10**9 + INTERVAL_NS, START_NS + 3 * 10**9)


def test_later_runs_add_only_new_parts(tmp_path: Path, files: list[Path]) -> None:
    collect(tmp_path, files[0])
    before = digests(tmp_path)
    again = collect(tmp_path, *files)
    assert (len(again.written), len(again.kept)) == (2, 1)
    assert before.items() <= digests(tmp_path).items()
    # a run that was killed before the last file of a part
    store = DatasetStore(str(tmp_path))
    (part, *_) = store.parts(FILES)
    for tier in (FILES, STEPS):
        store.remove(part.path(tier))
    after = collect(tmp_path, *files)
    assert [one.part for one in after.written] == [part]
    assert before.items() <= digests(tmp_path).items()
    nothing = collect(tmp_path, *files)
    assert nothing.describe() == "nothing new was collected\n3 parts had been collected before"


def test_unusable_files_are_named_and_others_collected(tmp_path: Path, files: list[Path]) -> None:
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(files[1].read_bytes()[:5000])
    late = make_recording(500, host="node0", start_ns=START_NS + 5 * 10**9)
    save(tmp_path / "late.parquet", late)
    save(tmp_path / "nameless.parquet", make_recording(10, host=""))
    paths = [files[0], damaged, tmp_path / "late.parquet", tmp_path / "nameless.parquet", tmp_path / "gone"]
    result = collect(tmp_path / "set", *paths)
    assert [one.part.node for one in result.written] == ["node0"]
    problems = "\n".join(result.problems)
    assert "damaged.parquet is cut off or damaged" in problems
    assert "late.parquet: samples of node0 from 2025-11-21 00:00:05 UTC on are there already" in problems
    assert "nameless.parquet: the name of its node has 0 characters" in problems
    assert "gone cannot be read: No such file or directory" in problems
    assert len(digests(tmp_path / "set")) == 5


def test_recordings_of_too_many_hours_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibpulse.workbench.fleet.collection.MAX_PARTS", 2)
    save(tmp_path / "slow.parquet", make_recording(3, interval_ns=HOUR_NS))
    result = collect(tmp_path / "set", tmp_path / "slow.parquet")
    assert result.written == []
    assert "node7 has more than 2 parts; choose a shorter span" in result.problems[0]


def test_duckdb_reads_all_tiers_with_their_keys(tmp_path: Path, files: list[Path]) -> None:
    collect(tmp_path, *files, job="0042", labels={"node1": {"rack": "r1", "leaf": "l1", "stage": "0"}})
    types = "hive_types = {'job': VARCHAR, 'date': VARCHAR, 'hour': VARCHAR, 'node': VARCHAR}"

    def rows(tier: str, query: str) -> list[Any]:
        found = f"read_parquet('{tmp_path}/tier={tier}/*/*/*/*/*.parquet', hive_partitioning = true, {types})"
        with duckdb.connect() as database:
            return database.execute(query.replace("TIER", found)).fetchall()

    keys = rows("node10ms", "SELECT DISTINCT job, date, hour, node FROM TIER ORDER BY node")
    assert keys == [("0042", "2025-11-21", "00", f"node{number}") for number in range(3)]
    assert rows("files", "SELECT node, rack, leaf, stage FROM TIER WHERE rack IS NOT NULL") == [
        ("node1", "r1", "l1", "0")
    ]
    late = rows(
        "steps", "SELECT median(transmit_first_ns - receive_first_ns) / 1e6 FROM TIER GROUP BY node ORDER BY node"
    )
    assert [ms for (ms,) in late] == pytest.approx([0, 2, 4], abs=0.1)
    # a sum of raw rates is that of the tier
    raw = rows("raw", "SELECT sum(transmit_bytes_per_second) FROM TIER WHERE node = 'node2'")
    tier = rows("node10ms", "SELECT sum(transmit_bytes_per_second) FROM TIER WHERE node = 'node2'")
    assert raw[0][0] == pytest.approx(tier[0][0], rel=1e-6)


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (
            ["a", "--from=soon", "--to=2026-11-21"],
            ["flag --from: 'soon' is not a time", "flag --to: '2026-11-21' is not"],
        ),
        (["a", "--last=1m", "--from=1763683200000"], ["flag --last: cannot be combined with --from and --to"]),
        (["--url=http://g", "a"], ["flag --url: cannot be combined with files or nodes.sources"]),
        (["--url=http://g", "--to=1763683200000"], ["flag --to: needs --from; give both"]),
        (["a", "--from=1763683200000", "--to=1763683200000"], ["flag --to: is not after --from; exchange them"]),
    ],
)
def test_contradictory_arguments_are_refused_together(
    words: list[str], faults: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "collect", "-o", str(tmp_path / "set"), *words], {}) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(f"ibpulse: {fault}")
    assert not (tmp_path / "set").exists()


def test_the_command_gives_nodes_their_labels(tmp_path: Path) -> None:
    (path,) = save_nodes(tmp_path, Node(), ticks=600)
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"targets": ["node1:10055"], "labels": {"rack": "r7"}}]))
    words = ["fleet", "collect", str(path), f"--nodes.sources={nodes}", "-o", str(tmp_path / "set"), "--processes=1"]
    assert main(words, {}) == 0

    store = DatasetStore(str(tmp_path / "set"))
    (part,) = store.parts("files")
    assert store.read_table("files", part).column("rack").to_pylist() == ["r7"]


def test_silent_nodes_are_named_and_no_note_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"targets": ["127.0.0.1:1"], "labels": {"node": "gone"}}]))
    words = ["fleet", "collect", f"--nodes.sources={nodes}", "-o", str(tmp_path / "set"), "--processes=1"]
    assert main(words, {}) == 1
    assert capsys.readouterr().out == "nothing new was collected\nsomething is missing of 1 node: gone\n"
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["dataset.json", "tier=missing"]
    assert main([*words, "--url=http://127.0.0.1:1"], {}) == 2
    capsys.readouterr()
    assert main([*words[:2], "--url=http://127.0.0.1:1", *words[3:]], {}) == 1
    assert "http://127.0.0.1:1: it refuses connections" in capsys.readouterr().err
