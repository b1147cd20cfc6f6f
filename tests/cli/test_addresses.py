"""The address of a daemon: `--url` or a word, for every verb that reads one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.cli import main
from ibpulse.commands import VERBS
from ibpulse.commands.compare import source_path
from ibpulse.commands.options import is_address, read_url
from ibpulse.commands.parser import parse
from ibpulse.core.recordings import Recording
from tests.reports.recordings import record, wave

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


def test_an_address_is_a_url_or_host_and_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(map(is_address, ("http://node7", "https://gw/node/a", "node7:10055", "gw:10056/node/a")))
    assert not any(map(is_address, ("node7", "a.parquet", "/data/a:1", "10s", "2026-11-21T12:00:00Z")))
    monkeypatch.chdir(tmp_path)
    Path("node7:1").touch()
    assert not is_address("node7:1")


def test_the_path_of_an_address_has_no_password() -> None:
    assert source_path(URL) == Path("node7:10055")
    assert source_path("user:secret@gw:10056/node/a/") == Path("gw:10056/node/a")


@pytest.mark.parametrize("words", [(URL,), (f"--url={URL}",)])
def test_a_report_reads_the_recent_past_of_a_daemon(
    words: tuple[str, ...], asked: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *words, "--format=json", "--resamples=100"], {}) == 0
    document = json.loads(capsys.readouterr().out)
    assert [run["file"] for run in document["recordings"]] == ["node7:10055"]
    assert asked == [(URL, 60 * 10**9)]


def test_a_picture_of_two_daemons(tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    out = str(tmp_path / "a.svg")
    assert main(["render", "node7:1", "--url=node8:1", "-o", out, "--last=5s"], {}) == 0
    assert asked == [("node7:1", 5 * 10**9), ("node8:1", 5 * 10**9)]
    assert ">node8:1<" in Path(out).read_text()


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
