"""`ibpulse report` as a command: its arguments, its output, and what it says of files that are no recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError, PictureError
from ibpulse.cli import main
from ibpulse.commands import VERBS
from ibpulse.commands.compare import source_path
from ibpulse.commands.options import is_address, read_url
from ibpulse.commands.parser import parse
from ibpulse.core.recordings import Recording, save
from ibpulse.workbench.simulate.workloads import DENSE, MOE
from tests.reports.recordings import play, record, wave


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


URL = "http://user:secret@node7:10055"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The addresses that a command read, with the nanoseconds of each."""
    found: list[tuple[str, int]] = []

    def fetch(url: str, last_ns: int) -> Recording:
        found.append((url, last_ns))
        return record(wave(10e9, 20, 30, 30))

    monkeypatch.setattr("ibpulse.workbench.recorder.from_daemon.fetch_recent", fetch)
    monkeypatch.setattr("ibpulse.commands.compare.await_daemon", lambda url: url)
    return found


def test_an_address_is_a_url_or_host_and_port_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source_path(URL) == Path("node7:10055")
    assert source_path("user:secret@gw:10056/node/a/") == Path("gw:10056/node/a")
    assert all(map(is_address, ("http://node7", "https://gw/node/a", "node7:10055", "gw:10056/node/a")))
    assert not any(map(is_address, ("node7", "a.parquet", "/data/a:1", "10s", "2026-11-21T12:00:00Z")))
    monkeypatch.chdir(tmp_path)
    Path("node7:1").touch()
    assert not is_address("node7:1")


@pytest.mark.parametrize("words", [(URL,), (f"--url={URL}",)])
def test_a_report_reads_the_recent_past_of_a_daemon(
    words: tuple[str, ...], asked: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words, "--format=json", "--resamples=100"], {}) == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["file"] for run in document["recordings"]] == ["node7:10055"]
    assert asked == [(URL, 60 * 10**9)]


def test_a_model_is_compared_with_a_daemon(asked: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "--job=qwen2.5-7b-fsdp", f"--url={URL}", "--last=30s"], {}) == 0
    assert "compared with node7:10055: " in capsys.readouterr().out
    assert asked == [(URL, 30 * 10**9)]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("report", "no recording is given"),
        ("report http://a --from=10s", "flag --from: a daemon's recent past is chosen with --last"),
        ("model --against=http://a:1", "flag --against: 'http://a:1' is an address; use --url=http://a:1"),
        ("model --against=a.parquet --url=http://a:1", "flag --against: cannot be combined with --url"),
        ("fleet collect -o x http://a:1 http://b:1", "http://b:1: not expected here; give the address of one gateway"),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(words: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split(), {}) == 2
    assert f"ibpulse: {fault}" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("record", "x.parquet"), ("top",)])
def test_record_and_top_take_one_address(words: tuple[str, ...]) -> None:
    verb, rest = VERBS[words[0]], words[1:]
    for given in ("node7", "--url=node7"):
        assert read_url(parse(verb, [*rest, given]).arguments) == "node7"
    assert read_url(parse(verb, rest).arguments) is None
    with pytest.raises(ConfigError):
        read_url(parse(verb, [*rest, "node7", "--url=node8"]).arguments)
