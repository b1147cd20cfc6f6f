"""The process apart: it hands over what it found, and nobody waits for its end."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from multiprocessing.connection import Connection

import pytest

from ibpulse.agent.doctor import DoctorOptions, examination
from ibpulse.agent.doctor.examination import find_facts_in_child
from ibpulse.agent.sampler import lane
from ibpulse.agent.sampler.lane import PipedProcess
from ibpulse.base.errors import FabricError
from tests.doctor.making import make_facts, make_request
from tests.running import HANG_SECONDS
from tests.sysfs.trees import Tree

# the end of a process is waited for in sleeps
starts_a_process = pytest.mark.real("process", "sleep")


@starts_a_process
def test_facts_come_back_as_values(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.add("mlx5_0")
    monkeypatch.setattr(examination, "MAX_SECONDS", 2 * HANG_SECONDS)
    facts = find_facts_in_child(make_request(DoctorOptions(sysfs=tree.root, port=0, sample=False)))
    assert [str(port.id) for port in facts.fabric.ports] == ["mlx5_0:1"]


def test_facts_can_be_handed_over() -> None:
    facts = make_facts()
    assert pickle.loads(pickle.dumps(facts)) == facts


@starts_a_process
@pytest.mark.parametrize(
    ("program", "answers", "ends", "message"),
    [
        ("pass", HANG_SECONDS, HANG_SECONDS, ""),
        ("1 / 0", HANG_SECONDS, HANG_SECONDS, "ZeroDivisionError"),
        ("import time; time.sleep(600)", 0.0, 0.0, ""),
        (
            "import os, time; os.write(2, b'stuck'); os.closerange(3, 2**20); time.sleep(600)",
            HANG_SECONDS,
            0.0,
            "stuck",
        ),
    ],
)
def test_a_process_without_an_answer_is_an_error_with_its_message(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    program: str,
    answers: float,
    ends: float,
    message: str,
) -> None:
    real, begun = lane.PipedProcess, []

    def run_instead(_: object, inherited: tuple[int, ...]) -> PipedProcess:
        begun.append(real([sys.executable, "-c", program], inherited))
        return begun[-1]

    monkeypatch.setattr(lane, "PipedProcess", run_instead)
    monkeypatch.setattr(examination, "MAX_SECONDS", answers)
    monkeypatch.setattr(examination, "ENDING_SECONDS", ends)
    with pytest.raises(FabricError, match="the process that examines the devices did not answer"):
        find_facts_in_child(make_request(DoctorOptions()))
    assert message in caplog.text
    assert bool(message) == bool(caplog.messages)
    begun[0].wait(HANG_SECONDS)


@starts_a_process
def test_a_process_that_answers_and_cannot_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = make_facts()

    class Hung:
        """Answers at once, and ignores that it is killed."""

        def __init__(self, _: object, inherited: tuple[int, ...]) -> None:
            self.connection = Connection(os.dup(inherited[0]))
            self.connection.send(facts)
            self.killed = False

        def wait(self, seconds: float) -> None:
            raise subprocess.TimeoutExpired("doctor", seconds)

        def kill(self) -> None:
            self.killed = True

        def poll(self) -> None:
            assert self.killed

    monkeypatch.setattr(lane, "PipedProcess", Hung)
    assert find_facts_in_child(make_request(DoctorOptions())) == facts
