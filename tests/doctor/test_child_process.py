"""The process apart: it hands over what it found, and nobody waits for its end."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from ibpulse.agent.doctor import DoctorOptions, child_process
from ibpulse.agent.doctor.child_process import FactsRequest, find_facts_in_child
from ibpulse.agent.doctor.facts import Facts
from ibpulse.base.errors import FabricError
from tests.doctor.making import make_facts, make_request
from tests.sysfs.trees import Tree

# the end of a process is waited for in sleeps
starts_a_process = pytest.mark.real("process", "sleep")


@starts_a_process
def test_facts_come_back_as_values(tree: Tree) -> None:
    tree.add("mlx5_0")
    facts = find_facts_in_child(make_request(DoctorOptions(sysfs=tree.root, port=0, sample=False)))
    assert [str(port.id) for port in facts.fabric.ports] == ["mlx5_0:1"]


def test_facts_can_be_handed_over() -> None:
    facts = make_facts()
    assert pickle.loads(pickle.dumps(facts)) == facts


def run_instead(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    real = child_process.subprocess.Popen
    monkeypatch.setattr(
        child_process.subprocess, "Popen", lambda _, **how: real([sys.executable, "-c", program], **how)
    )


@starts_a_process
def test_a_process_that_ends_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run_instead(monkeypatch, "import sys; sys.stdin.buffer.read()")
    with pytest.raises(FabricError, match="the process that examines the devices did not answer"):
        find_facts_in_child(make_request(DoctorOptions()))


@starts_a_process
def test_messages_of_the_process_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_instead(monkeypatch, "import sys; sys.stdin.buffer.read(); sys.stderr.write('a' * 200_000); print(1 / 0)")
    with pytest.raises(FabricError):
        find_facts_in_child(make_request(DoctorOptions()))
    said = capsys.readouterr().err
    assert said.count("a") > 200_000
    assert said.endswith("ZeroDivisionError: division by zero\n")


@starts_a_process
def test_a_process_that_closes_its_messages_may_answer_later(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, sys, time; os.close(2); sys.stdin.buffer.read(); time.sleep(0.5)"
    run_instead(monkeypatch, program)
    with pytest.raises(FabricError):
        find_facts_in_child(make_request(DoctorOptions()))


class HungProcess:
    """Stands for a process that has written this and then hangs, until nobody needs it any more."""

    def __init__(self, answer: bytes, message: bytes) -> None:
        self.stdin = BytesIO()
        self.stdout, self.stderr = self._holding(answer), self._holding(message)
        self.returncode: int | None = None
        self.killed = False

    def _holding(self, text: bytes) -> BinaryIO:
        """A pipe with this text, which stays open on the other side."""
        reading, writing = os.pipe()
        os.write(writing, text)
        weakref.finalize(self, os.close, writing)
        return os.fdopen(reading, "rb", buffering=0)

    def wait(self, seconds: float) -> int:
        raise subprocess.TimeoutExpired("doctor", seconds)

    def kill(self) -> None:
        self.killed = True


def hang(monkeypatch: pytest.MonkeyPatch, answer: bytes = b"", message: bytes = b"") -> HungProcess:
    process = HungProcess(answer, message)
    monkeypatch.setattr(child_process.subprocess, "Popen", lambda *_, **__: process)
    monkeypatch.setattr(child_process, "MAX_SECONDS", 0.0)
    return process


@pytest.mark.parametrize("answer", [b"", b"\1", bytes((9, 0, 0, 0, 0, 0, 0, 0)) + b"half"])
def test_a_process_that_says_something_and_hangs_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: bytes
) -> None:
    process = hang(monkeypatch, answer, b"before")
    with pytest.raises(FabricError):
        find_facts_in_child(make_request(DoctorOptions()))
    assert capsys.readouterr().err == "before"
    assert process.killed


def test_a_process_that_answers_and_cannot_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = pickle.dumps(make_facts())
    process = hang(monkeypatch, len(answer).to_bytes(child_process.LENGTH_BYTES, "little") + answer)
    assert find_facts_in_child(make_request(DoctorOptions())) == make_facts()
    assert process.killed
    assert process.returncode == 0


def test_an_interrupt_ends_the_process_quietly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def interrupt(_: FactsRequest) -> Facts:
        raise KeyboardInterrupt

    orders = tmp_path / "order"
    orders.write_bytes(pickle.dumps(make_request(DoctorOptions())))
    monkeypatch.setattr(child_process, "find_facts", interrupt)
    monkeypatch.setattr(child_process, "_log_only_messages_of_samplers", lambda: None)
    monkeypatch.setattr(child_process.os, "dup2", lambda *_: 0)
    with orders.open("rb") as stream, (tmp_path / "out").open("wb") as out:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(fileno=out.fileno))
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(fileno=out.fileno))
        assert child_process.main() == 130
