"""`ibpulse import` as a command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ibpulse.cli import main
from ibpulse.core.recordings import load

WORDS = ["--time=when", "--transmit=sent", "--receive=got"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("when,nic,sent,got\n" + "".join(f"{second},a,{second},{5 * second}\n" for second in range(11)))
    return path


def test_a_log_becomes_a_recording_and_what_it_holds_is_said(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = log.with_name("out.parquet")
    words = ["--port=nic", "--unit=words", "--line-rate=50GB/s", "--host=node7", "--interval=2s", "--longest-gap=1m"]
    assert main(["import", str(log), "-o", str(out), *WORDS, *words], {}) == 0
    assert capsys.readouterr() == (f"{out}: 1 port, 5 samples of 2s, 0.0 % missing\n", "")
    recording = load(out)
    assert recording.bytes_per_second.tolist() == [[[4.0] * 5, [20.0] * 5]]
    assert (recording.meta.host, recording.meta.reason) == ("node7", "log.csv")
    assert (str(recording.meta.ports[0].id), recording.meta.ports[0].rate_bytes_per_second) == ("a:1", 50e9)


def test_the_share_of_holes_is_that_of_the_columns_that_there_are(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = log.with_name("out.parquet")
    assert main(["import", str(log), "-o", str(out), "--time=when", "--transmit=sent"], {}) == 0
    assert capsys.readouterr().out.endswith("10 samples of 1s, 0.0 % missing\n")
    assert np.isnan(load(out).bytes_per_second[0, 1]).all()


def test_a_log_of_resets_alone_is_all_holes(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text("when,sent,got\n0,9,9\n1,8,8\n2,7,7\n")
    assert main(["import", str(log), "-o", str(log.with_name("out.parquet")), *WORDS], {}) == 0
    assert capsys.readouterr().out.endswith("2 samples of 1s, 100.0 % missing\n")


def test_faults_of_the_arguments_are_told_together(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--interval=0s", "--longest-gap=5", "--line-rate=fast"]
    assert main(["import", str(log), "-o", "/nowhere/out", *WORDS, *words], {}) == 2
    assert capsys.readouterr().err.splitlines() == [
        "ibpulse: flag --interval: '0s' is zero; give more than 0",
        "ibpulse: flag --longest-gap: 5 has no unit; write it like 10ms, 5s or 1h30m",
        "ibpulse: flag --line-rate: 'fast' is not a rate; write it like 0.1GB/s or 50MB/s",
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty; name another file"),
        ("a,b\n1,2\n", "has no column when, sent, got; it has a, b"),
        ("when,sent,got\n0,1,1\n", "has fewer than two samples of each port; log for longer"),
    ],
)
def test_a_log_that_cannot_be_used_is_named(
    log: Path, content: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(content)
    out = log.with_name("out.parquet")
    assert main(["import", str(log), "-o", str(out), *WORDS], {}) == 1
    assert capsys.readouterr() == ("", f"ibpulse: log {log} {sentence}\n")
    assert not out.exists()


def test_a_place_that_cannot_be_written_is_named(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = log.parent / "nowhere" / "out.parquet"
    assert main(["import", str(log), "-o", str(out), *WORDS], {}) == 1
    assert capsys.readouterr().err.startswith(f"ibpulse: recording {out} cannot be written: No such file or directory")


def test_the_output_is_asked_for(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(log), *WORDS], {}) == 2
    assert "-o/--output" in capsys.readouterr().err
