"""The command line of `ibpulse render`: what it draws, and which arguments are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.installation import how_to_install
from ibpulse.cli import main
from ibpulse.core.recordings import Recording
from ibpulse.workbench.pictures.run import keep_direction
from ibpulse.workbench.simulate.workloads import DENSE, MOE
from tests.pictures.runs import pixels, saved
from tests.reports.recordings import play, record


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("dense") / "run.parquet", play(DENSE, 6))


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("moe") / "run.parquet", play(MOE, 6))


def render(*words: str) -> int:
    return main(["render", *words], {})


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert render(*words) != 0
    return capsys.readouterr().err


def test_picture_has_the_numbers_of_the_report(
    tmp_path: Path, dense: str, moe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.svg"
    assert render(dense, moe, "-o", str(out)) == 0
    assert "out.svg: heatmap of dense0/run, moe0/run, " in capsys.readouterr().out
    said = out.read_text()
    main(["report", dense, "--resamples=100", "--format=json"], {})
    assert ">mlx5_6:1<" in said
    assert ">idle rails<" in said
    assert ">CV at 10 ms<" in said
    assert '"mlx5_6:1"' in capsys.readouterr().out


def test_time_and_ports_can_be_selected(tmp_path: Path, moe: str) -> None:
    out = tmp_path / "out.svg"
    assert render(moe, "-o", str(out), "--last=1s", "--port=mlx5_3", "--direction=transmit", "--width=1500") == 0
    said = out.read_text()
    assert "2025-11-21 00:00:05 UTC · 1 s at 10 ms" in said
    assert "mlx5_3:1" in said
    assert "mlx5_2:1" not in said
    assert "node bandwidth (GB/s), transmit<" in said


def test_a_direction_halves_what_is_even(tmp_path: Path) -> None:
    recording = record(np.full((2, 2, 50), 10e9))
    alone = keep_direction(recording, "receive")
    assert np.isnan(alone.bytes_per_second[:, 0]).all()
    assert (alone.bytes_per_second[:, 1] == 10e9).all()
    assert (alone.seconds[:, 0] == 0).all()
    out = tmp_path / "out.svg"
    assert render(saved(tmp_path / "a.parquet", recording), "-o", str(out), "--direction=receive") == 0
    assert ">20.00 GB/s<" in out.read_text()
    assert ">20.00 %<" in out.read_text()


def test_the_type_of_the_output_tells_the_picture(
    tmp_path: Path, dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, words, kind in (
        ("a.png", (), "heatmap"),
        ("b.png", ("--picture=distribution",), "distribution"),
        ("c.gif", ("--fps=2", "--width=700"), "animation"),
    ):
        assert render(dense, "-o", str(tmp_path / name), "--last=2s", *words) == 0
        assert capsys.readouterr().out.startswith(f"{tmp_path / name}: {kind} of run")
    assert pixels(tmp_path / "c.gif").shape[1] == 700


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-o", "a.gif", "--picture=heatmap"), "output a.gif: a heatmap can only be written as png, svg"),
        (("-o", "a.png", "--width=100"), "flag --width: 100 pixels at 200 dpi are too few for the labels"),
        (("-o", "a.png", "--width=14000", "--dpi=600"), "flag --width: 14000 exceeds the maximum of 12000 pixels"),
        (("-o", "a.png", "--from=9s"), "has no data between --from and --to: it is 6 s long"),
        (("-o", "/proc/none/a.png"), "output /proc/none/a.png cannot be written: No such file or directory"),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence(
    dense: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    said = refused(capsys, dense, *words)
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_a_recording_of_holes_or_without_line_rate_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = saved(tmp_path / "a.parquet", record(np.full((1, 2, 9), np.nan)))
    assert "recording a has no values for mlx5_0:1; choose other" in refused(capsys, name, "-o", "a.png")
    recording: Recording = record(np.ones((1, 2, 9)), line=None)
    name = saved(tmp_path / "a.parquet", recording)
    assert render(name, "-o", str(tmp_path / "a.png")) == 0
    assert "has no line rate for mlx5_0:1; use --unit=GB/s" in refused(
        capsys, name, "-o", "a.png", "--unit=utilization"
    )


@pytest.mark.real("process")
@pytest.mark.parametrize("module", ["matplotlib", "PIL"])
def test_missing_library_error_names_install_command(module: str, dense: str) -> None:
    # a name that is None in sys.modules cannot be imported
    script = (
        f"import sys; sys.modules[{module!r}] = None\nfrom ibpulse.cli import main\n"
        f"sys.exit(main(['render', {dense!r}, '-o', 'a.png'], {{}}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    sentence = f"pictures need matplotlib and pillow; {how_to_install('matplotlib', 'pillow')}"
    assert (done.returncode, done.stderr) == (1, f"ibpulse: {sentence}\n")


def test_an_existing_picture_is_only_replaced_on_request(
    tmp_path: Path, dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.svg"
    assert render(dense, "-o", str(out), "--last=1s", "--title=A run") == 0
    assert ">A run<" in out.read_text()
    assert f"output {out} exists; use --force" in refused(capsys, dense, "-o", str(out), "--title=B")
    assert ">A run<" in out.read_text()
    other = str(tmp_path / "b.svg")
    assert "2 titles for 1 recordings" in refused(capsys, dense, "-o", other, "--title=B", "--title=C")
