"""A child process with streams of its own: where they lead, and how its messages are logged."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from ibpulse.agent.sampler.lane import PipedProcess
from tests.running import eventually


@pytest.fixture(autouse=True)
def all_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def start(program: str) -> PipedProcess:
    return PipedProcess([sys.executable, "-c", program])


def ended(process: PipedProcess) -> int:
    eventually(lambda: process.poll() is not None)
    status = process.poll()
    assert status is not None
    return status


def test_no_stream_of_the_process_is_one_of_ours(tmp_path: Path) -> None:
    program = f"import os; open({str(tmp_path / 'streams')!r}, 'w').write(' '.join(map(os.readlink, {{}})))"
    names = [f"/proc/self/fd/{number}" for number in range(3)]
    assert ended(start(program.format(names))) == 0
    streams = (tmp_path / "streams").read_text().split()
    assert streams[:2] == ["/dev/null", "/dev/null"]
    assert streams[2].startswith("pipe:")
    assert streams[2] != str(Path("/proc/self/fd/2").readlink())


def test_messages_are_logged_whole_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    assert ended(start("print('to standard output')")) == 0
    assert caplog.records == []
    assert ended(start("1 / 0")) == 1
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("message from a process: ")
    assert "Traceback (most recent call last):" in record.getMessage()
    assert record.getMessage().endswith("ZeroDivisionError: division by zero")
    assert ended(start("1 / 0")) == 1
    assert len(caplog.records) == 1
    caplog.clear()
    # a pipe holds less
    assert ended(start("import sys; sys.stderr.write('x' * 1_000_000)")) == 0
    assert sum(record.getMessage().count("x") for record in caplog.records) == 1_000_000


def test_a_message_of_a_process_that_goes_on_is_logged_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    process = start("import sys, time; sys.stderr.write('one\\n'); time.sleep(60)")
    eventually(lambda: process.poll() is None and "one" in caplog.text)
    process.kill()
    assert ended(process) < 0
    assert len(caplog.records) == 1
