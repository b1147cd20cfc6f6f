"""The process apart: it hands over what it found, and nobody waits for its end."""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ibpulse.doctor import DoctorOptions, child_process
from ibpulse.doctor.child_process import FactsRequest, FoundFacts, find_facts_in_child
from ibpulse.errors import FabricError
from tests.doctor.making import make_facts, make_request
from tests.sysfs.trees import Tree


def test_facts_and_tree_come_back_as_values(tree: Tree) -> None:
    tree.add("mlx5_0")
    request = make_request(DoctorOptions(sysfs=tree.root, port=0, sample=False), with_tree=True)
    found = find_facts_in_child(request)
    assert [str(port.id) for port in found.facts.fabric.ports] == ["mlx5_0:1"]
    assert found.tree is not None
    assert "class/infiniband/mlx5_0" in found.tree.links
    assert find_facts_in_child(make_request(request.options)).tree is None


def test_facts_can_be_handed_over() -> None:
    facts = make_facts()
    assert pickle.loads(pickle.dumps(FoundFacts(facts))).facts == facts


def run_instead(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    real = child_process.subprocess.Popen
    monkeypatch.setattr(
        child_process.subprocess, "Popen", lambda _, **how: real([sys.executable, "-c", program], **how)
    )


def test_a_process_that_ends_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run_instead(monkeypatch, "import sys; sys.stdin.buffer.read()")
    with pytest.raises(FabricError, match="the process that examines the devices did not answer"):
        find_facts_in_child(make_request(DoctorOptions()))


def test_messages_of_the_process_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_instead(monkeypatch, "import sys; sys.stdin.buffer.read(); sys.stderr.write('a' * 200_000); print(1 / 0)")
    with pytest.raises(FabricError):
        find_facts_in_child(make_request(DoctorOptions()))
    said = capsys.readouterr().err
    assert said.count("a") > 200_000
    assert said.endswith("ZeroDivisionError: division by zero\n")


def test_a_process_that_says_something_and_hangs_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "import os, sys, time; sys.stdin.buffer.read(); os.write(2, b'before'); time.sleep(60)"
    run_instead(monkeypatch, program)
    monkeypatch.setattr(child_process, "LONGEST_SECONDS", 3.0)
    with pytest.raises(FabricError):
        find_facts_in_child(make_request(DoctorOptions()))
    assert capsys.readouterr().err == "before"


def test_a_process_that_closes_its_messages_may_answer_later(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, sys, time; os.close(2); sys.stdin.buffer.read(); time.sleep(0.5)"
    run_instead(monkeypatch, program)
    with pytest.raises(FabricError):
        find_facts_in_child(make_request(DoctorOptions()))


def test_a_process_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run_instead(monkeypatch, "import sys, time; sys.stdin.buffer.read(); time.sleep(60)")
    monkeypatch.setattr(child_process, "LONGEST_SECONDS", 0.3)
    with pytest.raises(FabricError):
        find_facts_in_child(make_request(DoctorOptions()))


def test_a_process_that_cannot_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import pickle, sys, time\n"
        "from ibpulse.doctor.child_process import FoundFacts\n"
        "from tests.doctor.making import make_facts\n"
        "sys.stdin.buffer.read()\n"
        "answer = pickle.dumps(FoundFacts(make_facts()))\n"
        "sys.stdout.buffer.write(len(answer).to_bytes(8, 'little') + answer)\n"
        "sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{Path(__file__).parents[2] / 'exporter'}")
    run_instead(monkeypatch, program)
    begin = time.monotonic()
    assert find_facts_in_child(make_request(DoctorOptions())).facts == make_facts()
    assert time.monotonic() - begin < 30.0


def test_an_interrupt_ends_the_process_quietly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(_: FactsRequest) -> FoundFacts:
        raise KeyboardInterrupt

    orders = tmp_path / "order"
    orders.write_bytes(pickle.dumps(make_request(DoctorOptions())))
    monkeypatch.setattr(child_process, "find_as_requested", interrupt)
    monkeypatch.setattr(child_process, "_log_only_messages_of_samplers", lambda: None)
    monkeypatch.setattr(child_process.os, "dup2", lambda *_: 0)
    with orders.open("rb") as stream, (tmp_path / "out").open("wb") as out:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(fileno=out.fileno))
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(fileno=out.fileno))
        assert child_process.main() == 130
