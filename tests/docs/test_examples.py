"""The examples in SQL and Python of the pages run, on files as they describe them."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from ibpulse.agent.web.app import create_app
from ibpulse.core.recordings import Recording, save
from ibpulse.core.signals import Signal
from ibpulse.core.statistics.gains import PortSignals
from ibpulse.workbench.fleet.collection import MissingSpan, collect_files, write_missing
from ibpulse.workbench.fleet.dataset import DatasetStore, Part
from tests.datasets.known_traffic import INTERVAL_NS, RATE, START_NS, Node, Pipeline, save_nodes
from tests.datasets.test_from_nodes import served
from tests.docs.pages import PAGES, ROOT, name
from tests.web.rings import full_node

DATASET = ROOT / "docs/fleet-dataset.md"
RUN = (name(DATASET), "docs/recording-format.md", "docs/captures.md")
"""The pages with examples that read files."""
ASKS = "docs/api.md"
"""The page with examples that ask a daemon."""
# tests/reports and tests/api run those of the first two; the third is the beginning of a test
ELSEWHERE = {"docs/record.md", "docs/python.md", "tests/campaigns/vm/README.md"}
CAPTURE = "20251121T000003.030Z-rail-lost-1f6c0a2e.parquet"


def examples(page: Path, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page.read_text())


def statements(page: Path) -> list[str]:
    texts = re.sub(r"(?m)^--.*$", "", "".join(examples(page, "sql"))).split(";")
    return [text.strip() for text in texts if text.strip()]


def with_signals(recording: Recording) -> Recording:
    """The recording with a waiting counter of each port that gains 7 in every 100 ms."""
    ports = [replace(port, signals=(Signal("port_transmit_wait", 32, stops=True),)) for port in recording.meta.ports]
    samples = np.arange(5, recording.ticks, 10)
    counters = 7 * np.arange(len(samples), dtype=np.uint64)[:, None]
    read = PortSignals(samples, np.append(np.nan, np.full(len(samples) - 1, 0.1)), counters)
    return replace(recording, meta=replace(recording.meta, ports=tuple(ports)), signals=(read,) * len(ports))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture, a recording, and a dataset of three nodes, of which the last one is 6 ms late."""
    directory = tmp_path_factory.mktemp("examples")
    nodes = [Node(f"gpu-{number}", (Pipeline((0, 1), late=0.006 * (number == 3)),)) for number in (1, 2, 3)]
    paths = save_nodes(directory, *nodes)
    recording = with_signals(nodes[0].record(1000))
    for file in ("capture.parquet", "a-whole-night.parquet", CAPTURE):
        save(directory / file, recording)
    store = DatasetStore(str(directory / "fleet"))
    store.begin()
    with ThreadPoolExecutor(1) as thread:
        collect_files(store, paths, thread, thread)
    write_missing(store, [MissingSpan(Part("", "gpu-4", START_NS), START_NS + 10**9, "it refuses connections")])
    return directory


@pytest.fixture
def here(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(files)
    return files


@pytest.mark.parametrize("page", RUN)
def test_every_statement_of_a_page_gives_rows(page: str, here: Path) -> None:
    with duckdb.connect() as database:
        for statement in statements(ROOT / page):
            found = database.execute(statement).fetchall()
            assert found or statement.startswith("CREATE"), statement


@pytest.mark.parametrize("page", RUN)
def test_every_example_in_python_runs(page: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    found = examples(ROOT / page, "python")
    assert found
    for example in found:
        exec(compile(example, page, "exec"), {})


def test_the_answers_are_right(here: Path) -> None:
    """The late node is the first one of both measures, and the busiest tenth of a second is busy all the time."""
    with duckdb.connect() as database:
        answers = [database.execute(statement).fetchall() for statement in statements(DATASET)]
        by_capture = database.execute(statements(ROOT / "docs" / "recording-format.md")[0]).fetchall()
    _, own, against_peers, shares, at_once, bounds, missing = answers
    assert (own[0][0], own[0][2]) == ("gpu-3", pytest.approx(6, abs=0.2))
    assert (against_peers[0][0], against_peers[0][2]) == ("gpu-3", pytest.approx(6, abs=0.3))
    assert [share for _, share, _ in shares] == pytest.approx([0.5, 0.5])
    assert at_once[0][1:] == (pytest.approx(6 * RATE / 1e9), 3, 0)
    assert bounds == [(None, 3)]
    assert missing == [("gpu-4", 1, "it refuses connections")]
    rates = Node("gpu-1").record(1000).bytes_per_second[0, 0]
    tenths = np.append(rates, np.nan)[: len(rates) // 10 * 10].reshape(-1, 10).mean(axis=1)
    assert [row[3] for row in by_capture] == pytest.approx([tenths.max()] * 2)
    assert INTERVAL_NS * 10 == 10**8


def test_the_examples_in_pandas_have_bytes_and_signals_on_one_axis(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    said: list[dict[str, Any]] = [{}, {}]
    for page, names in zip(RUN[1:], said, strict=True):
        exec(examples(ROOT / page, "python")[0], names)
    for waited in (said[0]["gained"]["port_transmit_wait"].dropna(), said[1]["frame"]["waited"].dropna()):
        assert (len(waited), set(waited)) == (2 * 99, {7})
    both = said[1]["frame"].dropna(subset=["waited", "transmit_bytes_per_second"])
    assert len(both) == 2 * 99


async def test_every_example_that_asks_a_daemon_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = full_node(tmp_path)
    async with served(create_app(node.parts())) as url:
        for example in examples(ROOT / ASKS, "python"):
            code = compile(example.replace("http://node:10055", url), ASKS, "exec")
            await asyncio.to_thread(exec, code, {})
    assert "['mlx5_0:1 receive', 'mlx5_1:1 receive']" in capsys.readouterr().out


def test_no_other_page_has_an_example_that_is_not_run() -> None:
    found = {name(page) for page in PAGES if examples(page, "python") or examples(page, "sql")}
    assert found == {*RUN, ASKS, *ELSEWHERE}
