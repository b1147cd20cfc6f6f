"""`ibpulse fleet collect` as a command: its arguments, its words, and a run that was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.cli import main
from ibpulse.workbench.fleet.dataset_store import DatasetStore
from ibpulse.workbench.fleet.unfinished_span import NOTE, UnfinishedSpan, continue_span, end_span
from tests.datasets.known_traffic import Node, save_nodes


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        ([], ["no source of samples; give nodes.sources, the --url of a gateway, or files"]),
        (["a", "--last=x"], ["flag --last: 'x' is not a duration"]),
        (
            ["a", "--from=soon", "--to=2026-11-21"],
            ["flag --from: 'soon' is not a time", "flag --to: '2026-11-21' is not"],
        ),
        (["a", "--last=1m", "--from=1763683200000"], ["flag --last: cannot be combined with --from and --to"]),
        (["--url=http://g", "a"], ["flag --url: cannot be combined with files or nodes.sources"]),
        (["--url=http://g", "--to=1763683200000"], ["flag --to: needs --from; give both"]),
        (["a", "--from=1763683200000", "--to=1763683200000"], ["flag --to: is not after --from; exchange them"]),
        (["a", "--processes=0"], ["flag --processes: 0 is out of bounds; choose 1 to 256"]),
    ],
)
def test_arguments_that_make_no_sense_are_refused_together(
    words: list[str], faults: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "collect", "-o", str(tmp_path / "set"), *words], {}) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(f"ibpulse: {fault}")
    assert not (tmp_path / "set").exists()


def test_files_are_collected_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = save_nodes(tmp_path, Node(), ticks=600)
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps([{"targets": ["node1:10055"], "labels": {"rack": "r7"}}]))
    words = ["fleet", "collect", str(path), f"--nodes.sources={nodes}", "-o", str(tmp_path / "set"), "--processes=1"]
    assert main(words, {}) == 0
    said = capsys.readouterr().out
    assert said.startswith("collected 1 part of 1 node: 0.1 node-minutes, 100 % of the samples observed, 7 steps, ")
    store = DatasetStore(str(tmp_path / "set"))
    (part,) = store.parts("files")
    assert store.read_table("files", part).column("rack").to_pylist() == ["r7"]
    assert main(words, {}) == 0
    assert capsys.readouterr().out == "nothing new was collected\n1 part had been collected before\n"
    assert main([*words[:2], str(tmp_path / "gone"), "-o", str(tmp_path / "set"), "--processes=1"], {}) == 1


def test_nodes_that_do_not_answer_are_said_and_a_finished_run_leaves_no_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_span_of_a_killed_run_is_continued_by_the_same_arguments(tmp_path: Path) -> None:
    store = DatasetStore(str(tmp_path))
    store.begin()
    now_ns = 1_763_683_200 * 10**9
    killed, later = UnfinishedSpan("5m", "7", 1, 2), UnfinishedSpan("5m", "7", now_ns, now_ns + 1)
    assert continue_span(store, killed) == (1, 2)
    assert continue_span(store, later) == (1, 2)
    assert continue_span(store, UnfinishedSpan("5m", "8", 3, 4)) == (3, 4)
    end_span(store)
    assert continue_span(store, later) == (now_ns, now_ns + 1)
    for damaged in (b"", b"[]", b'{"last": 5}', b'{"last":"5m","job":"7","begin_ns":9,"end_ns":3}'):
        store.write_note(NOTE, damaged)
        assert continue_span(store, later) == (now_ns, now_ns + 1)


def test_a_verb_of_two_words_has_a_list_of_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["fleet"], ["fleet", "--help"]):
        assert main(words, {}) == 0
        out = capsys.readouterr().out
        assert out.startswith("usage: ibpulse fleet COMMAND")
        assert "  fleet collect  Collect the samples of many nodes" in out
        assert "serve" not in out
    with pytest.raises(SystemExit):
        main(["help", "fleet", "collect"], {})
    assert "usage: ibpulse fleet collect [FILE...] -o DATASET [flag ...]" in capsys.readouterr().out
    assert main(["fleet", "colect"], {}) == 2
    assert "fleet colect: no such command; did you mean fleet collect?" in capsys.readouterr().err
