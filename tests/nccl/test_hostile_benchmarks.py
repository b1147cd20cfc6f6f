"""Truncated, damaged and hostile files are read in part or refused in one line, and no secret is ever written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.base.errors import BenchmarkError
from ibpulse.cli import main
from ibpulse.workbench.nccl import formats
from ibpulse.workbench.nccl import results as reading
from ibpulse.workbench.nccl.formats import read_benchmark
from ibpulse.workbench.nccl.results import BenchmarkRun
from tests.nccl.benchmark_writers import inspector_line, nccl_json, nccl_text, perftest
from tests.nccl.unusual_files import RCCL
from tests.tables import for_each

FORMS = {
    "text": nccl_text(),
    "json": nccl_json(),
    "perftest": perftest(),
    "inspector": inspector_line("AllReduce", 1 << 30, 5000) * 3,
}


@pytest.mark.parametrize("form", FORMS)
def test_truncated_files_are_read_or_refused(tmp_path: Path, form: str) -> None:
    path, text = tmp_path / "cut", FORMS[form]
    whole = 0
    for end in range(0, len(text), 7):
        path.write_text(text[:end])
        # perftest's last value would tell the unit
        run, refusal = try_to_read(path, "Gb/s")
        assert run is not None or str(path) in refusal
        if run is not None:
            whole += 1
            assert run.measurements
            assert run.remarks or run.complete
    assert whole > 3


def try_to_read(path: Path, unit: str = "") -> tuple[BenchmarkRun | None, str]:
    """The run, or why it is refused."""
    try:
        return read_benchmark(path, unit)[0], ""
    except BenchmarkError as error:
        return None, str(error)


def test_truncated_json_keeps_its_complete_rows(tmp_path: Path) -> None:
    text = nccl_json()
    path = tmp_path / "cut.json"
    path.write_text(text[: text.index('"size":1073741824') + 200])
    (run,) = read_benchmark(path)
    assert {row.size_bytes for row in run.measurements} >= {1 << 28, 1 << 29}
    assert (1 << 31) not in {row.size_bytes for row in run.measurements}
    assert not run.complete
    assert run.remarks == ("the file ends early; everything up to its last complete value was read",)


HOSTILE = {
    "deep": "{" + '"a":[' * 100_000,
    "backslashes": '{"a":' + '\\"' * 200_000 + "\\",
    "commas": "{" + "," * 200_000 + " " * 200_000,
    "huge number": nccl_json().replace('"size":268435456', '"size":' + "9" * 5000),
    "negative": nccl_json().replace('"bus_bw":360.0', '"bus_bw":-1'),
    "list": '{"version":3,"results":[1]}',
    "no results": '{"version":3,"results":[]}',
    "text without header": "  1024  256  float  sum  -1  1.0  1.0  1.0  0  1.0  1.0  1.0  0\n",
    "nothing": "\n\n",
    "words": "hello\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hostile"
    path.write_text(HOSTILE[name])
    assert main(["nccl", str(path)], {}) == 1
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert errors.startswith(f"ibpulse: benchmark file {path}")
    assert "; " in errors
    assert len(errors) < 400


def test_a_refusal_names_line_and_value(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(nccl_text().replace("360.00", "-360.0"))
    with pytest.raises(BenchmarkError, match=r"log:\d+ has the busbw '-360.0'; it must be a number from 0 on"):
        read_benchmark(path)


def test_values_are_counted_before_they_are_parsed(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_bytes(b'{"version":3,"results":[' + b"{}," * 2_600_000 + b"{}]}")
    with pytest.raises(BenchmarkError, match=r"many\.json has more than 5000000 values; benchmark only the sizes"):
        read_benchmark(path)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large"
    path.write_text(nccl_text() + "x" * (reading.MAX_LINE_BYTES + 1))
    with pytest.raises(BenchmarkError, match=r"has a line of more than 1\.05 MB"):
        read_benchmark(path)
    monkeypatch.setattr(reading, "MAX_LOG_BYTES", 1000)
    path.write_text(nccl_text())
    with pytest.raises(BenchmarkError, match="is larger than 1 kB; split it"):
        read_benchmark(path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("output", ["text", "json"])
def test_no_secret_is_ever_written(tmp_path: Path, form: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Environment, arguments and host names of the files begin with the same word; cuts and damage must not show it."""
    path = tmp_path / "benchmark"
    text = FORMS[form]
    assert form == "perftest" or "hunter2" in text
    wrong = [text, text.replace("3", "x"), text.replace('"version":3', '"version":"x"'), text.replace(":", ";")]
    for content in [*wrong, *(text[:end] for end in range(1, len(text), 97))]:
        path.write_text(content)
        main(["nccl", str(path), f"--format={output}"], {})
        assert "hunter2" not in "".join(capsys.readouterr())
    path.write_text(text)
    assert "hunter2" not in repr(read_benchmark(path))
    assert [each.name for each in tmp_path.iterdir()] == ["benchmark"]


@for_each([RCCL["one object per line"], RCCL["CSV"]])
def test_too_many_rows_are_refused_before_they_are_parsed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MAX_ROWS", 50)
    for name in ("_json_object", "_rccl_csv_rows"):
        monkeypatch.setattr(formats, name, lambda _: pytest.fail("parsed"))
    (tmp_path / "results").write_text(text + "0\n" * 50)
    with pytest.raises(BenchmarkError, match="has more than 50 results; split it"):
        read_benchmark(tmp_path / "results")
