"""`ibpulse trace`: JSON against the truth, picture and refusals; `tests/contract` has the text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ibpulse.cli import main
from ibpulse.core.recordings import save
from tests.overlap.played_traces import MS, PlayedTrace, compute, record, write_trace

PLAYED = PlayedTrace(steps=4, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("overlap")
    write_trace(made / "rank0.json.gz", PLAYED.timeline()[0])
    save(made / "node7.parquet", record(PLAYED))
    save(made / "later.parquet", record(PLAYED, shift_ns=18 * MS))
    return made


@pytest.fixture(scope="module")
def trace(folder: Path) -> str:
    return str(folder / "rank0.json.gz")


@pytest.fixture(scope="module")
def against(folder: Path) -> str:
    return f"--against={folder / 'node7.parquet'}"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["trace", *words], {}) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def refusal(capsys: pytest.CaptureFixture[str], *words: str, code: int = 1) -> str:
    assert main(["trace", *words], {}) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("ibpulse: ")
    assert found.err.count("\n") == 1
    return found.err.removeprefix("ibpulse: ").strip()


def test_several_ranks_have_a_summary_table(capsys: pytest.CaptureFixture[str], folder: Path, trace: str) -> None:
    other = write_trace(folder / "rank1.json", PLAYED.timeline()[0], distributedInfo={"rank": 1, "world_size": 16})
    text = run(capsys, trace, str(other))
    table = text[text.index("all devices") :].splitlines()
    assert len(table) == 4
    assert table[3].startswith(f"  {other}, device 0, rank 1 of 16")


def test_notes_state_limits_of_numbers_and_clocks(capsys: pytest.CaptureFixture[str], folder: Path, trace: str) -> None:
    path = write_trace(folder / "alone.json", [compute(0, MS)])
    text = run(capsys, str(path))
    assert "note: no kernel is known to communicate; add the names of yours with --communication" in text
    assert "note: the trace has no ProfilerStep, so there are no steps" in text
    text = run(capsys, trace, f"--against={folder / 'later.parquet'}")
    assert re.search(r"later.parquet, \+17\.9\d ± \d\.\d\d ms later than the trace, correlation", text)
    assert "note: the clocks of wire and trace are 17.9 ms apart, which is corrected: a clock was set" in text


def test_unsuitable_recordings_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, trace: str) -> None:
    base = record(PLAYED)
    path = tmp_path / "recording.parquet"
    slow = tuple(replace(port, stride=4) for port in base.meta.ports)
    other = tuple(replace(port, rail=False, role="storage") for port in base.meta.ports)
    for meta, start_ns, problem in (
        (replace(base.meta, ports=slow), base.start_ns, "has a value of port mlx5_0:1 only every 40 ms"),
        (replace(base.meta, ports=other), base.start_ns, "has no rail; choose its ports with --port"),
        (base.meta, base.start_ns + 10**13, "has no sample of the time of the trace"),
    ):
        save(
            path,
            replace(base, meta=meta, start_ns=start_ns),
        )
        assert problem in refusal(capsys, trace, f"--against={path}")
        path.unlink()


def test_ports_can_be_chosen(capsys: pytest.CaptureFixture[str], trace: str, against: str) -> None:
    whole = json.loads(run(capsys, trace, against, "--format=json"))["devices"][0]["wire"]
    one = json.loads(run(capsys, trace, against, "--format=json", "--port=mlx5_1:1"))["devices"][0]["wire"]
    assert one["waiting_ns"] == pytest.approx(whole["waiting_ns"], rel=0.01)
    assert "has no port 'mlx5_9'; choose one of mlx5_0:1, mlx5_1:1" in refusal(capsys, trace, against, "--port=mlx5_9")


def test_all_invalid_arguments_are_listed(capsys: pytest.CaptureFixture[str], trace: str, against: str) -> None:
    words = ("--communication=(", "--gpus-per-node=0", "--port=mlx5_0")
    assert main(["trace", trace, *words], {}) == 2
    faults = capsys.readouterr().err
    for flag in ("--communication: '(' is not a regular expression", "--gpus-per-node: 0 is", "--port: "):
        assert f"ibpulse: flag {flag}" in faults
    assert "neither .json nor .json.gz" in refusal(capsys, trace, "-o", "x.gif", code=2)
    for word, problem in (("-10", "10 has no unit"), ("soon", "'soon' is not a duration")):
        assert problem in refusal(capsys, trace, against, f"--shift={word}", code=2)
    assert "moves the recording; give --against as well" in refusal(capsys, trace, "--shift=0ms", code=2)


def test_output_escapes_names_and_hides_secrets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def renamed(one: dict[str, Any]) -> dict[str, Any]:
        details = {**one["args"], "Process Group Description": "a\nnote: fine\x1b[31m", "user": "secret-user"}
        return {**one, "args": details}

    path = write_trace(tmp_path / "trace.json", [renamed(one) for one in PLAYED.timeline()[0]], user="secret-user")
    for form in ("text", "json"):
        text = run(capsys, str(path), f"--format={form}")
        assert "\nnote: fine" not in text
        assert "\x1b" not in text
        assert "secret-user" not in text
