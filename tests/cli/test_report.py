"""`ibpulse report` as a command: its arguments, its output, and what it says of files that are no recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ibpulse.base.errors import PictureError
from ibpulse.cli import main
from ibpulse.core.recordings import RecordingWriter, save
from ibpulse.core.recordings.file_format import KEY
from ibpulse.workbench.simulate.workloads import DENSE, MOE
from tests.reports.recordings import play


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "dense.parquet"
    save(path, play(DENSE, 20))
    return path


@pytest.fixture(scope="module")
def moe(dense: Path) -> Path:
    path = dense.with_name("moe.parquet")
    save(path, play(MOE, 40))
    return path


def told(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    assert main(["report", *map(str, words), "--format=json"], {}) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Exit code and the lines on standard error; nothing is on standard output."""
    code = main(["report", *map(str, words)], {})
    output, errors = capsys.readouterr()
    assert output == ""
    return code, errors


@pytest.mark.parametrize(
    ("form", "begin"),
    [("text", "{}: node node7"), ("markdown", "# Report\n"), ("json", "{{\n"), ("html", "<!doctype html>")],
)
def test_every_format_is_printed(
    dense: Path, moe: Path, form: str, begin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(dense), str(moe), f"--format={form}", "--last=5s"], {}) == 0
    output, errors = capsys.readouterr()
    assert output.startswith(begin.format(dense))
    assert output.endswith("\n")
    assert not output.endswith("\n\n")
    assert errors == ""


def test_arguments_and_settings_reach_the_report(dense: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from=2s", "--to=12s", "--trim", "--port=mlx5_0", "--timescales=10ms,2s", "--resamples=200", "--seed=5"]
    found = told(capsys, dense, *words, "--least-change=0.05", "--analysis.active-threshold=1GB/s")
    assert found["options"] == {
        "trim": True,
        "active_bytes_per_second": 1e9,
        "timescales_seconds": [0.01, 2.0],
        "least_change": 0.05,
        "level": 0.95,
        "resamples": 200,
        "seed": 5,
        "gpu_active": [],
    }
    run = found["recordings"][0]
    assert 9.8 <= run["values"]["window_seconds"] <= 10.0
    assert [port["port"] for port in run["ports"]] == ["mlx5_0:1"]
    assert run["cut_before_seconds"] >= 2.0


def test_times_of_the_clock_cut_too(dense: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--from=2025-11-21T00:00:05Z", "--to=1763683210.0")
    run = told(capsys, dense, *words)["recordings"][0]
    assert (run["begin"][:19], run["end"][:19]) == ("2025-11-21T00:00:05", "2025-11-21T00:00:10")


def test_all_faults_of_the_arguments_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--from=soon", "--timescales=10,0s", "--least-change=-1", "--resamples=5", "--seed=-1"]
    code, errors = refused(capsys, "/nowhere.parquet", *words)
    assert code == 2
    assert errors.splitlines() == [
        "ibpulse: flag --from: 'soon' is not a time; write an offset like 10s, or 2026-11-21T12:00:00Z",
        "ibpulse: flag --timescales: 10 has no unit; write it like 10ms, 5s or 1h30m",
        "ibpulse: flag --timescales: '0s' is zero; give more than 0",
        "ibpulse: flag --least-change: '-1' is not a number; write it like 0.01",
        "ibpulse: flag --resamples: 5 is out of bounds; choose 100 to 100000",
        "ibpulse: flag --seed: '-1' is not a whole number; choose 0 or more",
    ]


def test_a_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    code, errors = refused(capsys)
    assert code == 2
    assert errors == "ibpulse: no recording is given; name a file, or the address of a daemon with --url\n"


def test_a_killed_recording_is_reported_as_far_as_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = play(DENSE, 10)
    writer = RecordingWriter(tmp_path / "a.parquet", recording.meta)
    writer.append(recording)
    run = told(capsys, tmp_path / "a.parquet")["recordings"][0]
    assert (run["complete"], run["values"]["window_seconds"]) == (False, pytest.approx(10.0))
    writer.close()


# files that are no recordings


def missing(folder: Path, _: Path) -> Path:
    return folder / "a.parquet"


def empty(folder: Path, _: Path) -> Path:
    (folder / "a.parquet").write_bytes(b"")
    return folder / "a.parquet"


def foreign(folder: Path, _: Path) -> Path:
    (folder / "a.parquet").write_text("time,bytes\n1,2\n")
    return folder / "a.parquet"


def truncated(folder: Path, whole: Path) -> Path:
    (folder / "a.parquet").write_bytes(whole.read_bytes()[:-2000])
    return folder / "a.parquet"


def of_another_program(folder: Path, _: Path) -> Path:
    pq.write_table(pa.table({"time": [1]}), folder / "a.parquet")
    return folder / "a.parquet"


def of_a_newer_version(folder: Path, whole: Path) -> Path:
    table = pq.read_table(whole)
    header = {**json.loads(table.schema.metadata[KEY]), "ibpulse_recording_version": 99}
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(header)}), folder / "a.parquet")
    return folder / "a.parquet"


def hostile(folder: Path, whole: Path) -> Path:
    """A recording that claims an interval with which its rows do not go together."""
    table = pq.read_table(whole)
    header = {**json.loads(table.schema.metadata[KEY]), "interval_ns": 1}
    pq.write_table(table.replace_schema_metadata({KEY: json.dumps(header)}), folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (missing, "cannot be read: No such file or directory; name another file"),
        (empty, "is empty; record again"),
        (foreign, "is not a recording: it is neither a Parquet file nor an Arrow stream; name another file"),
        (truncated, "is cut off or damaged: "),
        (
            of_another_program,
            "is not a recording of ibpulse: it lacks the metadata ibpulse_recording; name another file",
        ),
        (of_a_newer_version, "is of version 99, this program reads version 1; use a newer ibpulse"),
        (hostile, "has its rows in another order than ibpulse writes them; use the file that ibpulse wrote"),
    ],
)
def test_what_is_no_recording_is_named_and_nothing_is_printed(
    make: object, sentence: str, tmp_path: Path, dense: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(make)
    path = make(tmp_path, dense)
    code, errors = refused(capsys, dense, path)
    assert code == 1
    assert errors.startswith(f"ibpulse: recording {path} {sentence}")
    assert errors.count("\n") == 1


BRIEF = (
    "active_mean_bytes_per_second",
    "peak_bytes_per_second",
    "duty_cycle_ratio",
    "burstiness_cv_10ms",
    "active_p50_bytes_per_second",
    "active_p95_bytes_per_second",
    "step_period_seconds",
    "step_gap_seconds",
    "utilization_ratio",
    "fairness_ratio",
)


def test_a_brief_report_has_ten_rows_with_the_values_of_the_whole_one(
    dense: Path, moe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, brief = (told(capsys, dense, moe, "--resamples=100", *more) for more in ((), ("--brief",)))
    assert tuple(row["key"] for row in brief["rows"]) == BRIEF  # type: ignore[attr-defined]
    for before, after in zip(whole["recordings"], brief["recordings"], strict=True):  # type: ignore[call-overload]
        assert after["values"] == {key: before["values"][key] for key in BRIEF}
    assert main(["report", str(dense), "--brief", "--resamples=100"], {}) == 0
    text = capsys.readouterr().out
    assert text.count("\n  ") < 16
    assert "Phases" not in text
    assert "mlx5_0:1" not in text


def test_the_last_part_is_that_between_two_times(dense: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last, between = (told(capsys, dense, "--resamples=100", flag) for flag in ("--last=5s", "--from=15s"))
    assert last["recordings"] == between["recordings"]
    code, errors = refused(capsys, dense, "--last=5s", "--from=1s", "--to=2s")
    assert code == 2
    assert errors.splitlines() == [
        f"ibpulse: flag --last: cannot be combined with {flag}" for flag in ("--from", "--to")
    ]


def test_a_report_can_be_a_file_with_a_picture_and_other_names(
    dense: Path, moe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "ab.html"
    words = [str(dense), str(moe), "--brief", "--resamples=100", "--last=2s", "-o", str(output)]
    assert main(["report", *words, "--title=before <b>", "--title=after"], {}) == 0
    assert capsys.readouterr().out.startswith(f"{output}: report of before <b>, after, ")
    page = output.read_text()
    assert page.count("data:image/png;base64,iVBOR") == 2
    assert "<h1>before &lt;b&gt;, after</h1>" in page
    code, errors = refused(capsys, *words)
    assert (code, errors) == (2, f"ibpulse: output {output} exists; use --force to replace it, or name another file\n")


def test_without_matplotlib_a_page_has_no_picture_and_the_reason_is_told(
    dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PictureError("pictures need matplotlib")

    monkeypatch.setattr("ibpulse.workbench.pictures.still.draw_runs", refuse)
    output = tmp_path / "a.html"
    output.write_text("old")
    assert main(["report", str(dense), "-o", str(output), "--force", "--last=2s", "--resamples=100"], {}) == 0
    assert "data:image" not in output.read_text()
    assert "<h1>dense</h1>" in output.read_text()
    assert capsys.readouterr().err == "ibpulse: the page has no picture: pictures need matplotlib\n"
