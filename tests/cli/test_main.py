"""`ibpulse`: what it prints, where, and with which exit code; as a process where that makes a difference."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse import __version__
from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import load
from ibpulse.base.errors import ConfigError, RingError
from ibpulse.cli import main
from ibpulse.commands import VERBS, Verb
from ibpulse.commands.options import Option
from ibpulse.core.recordings import save
from tests.reports.recordings import record, wave

COMMAND = (sys.executable, "-m", "ibpulse")
Finish = Callable[..., tuple[int, str, str]]
as_a_process = pytest.mark.real("process")


def start(words: Sequence[str], variables: Mapping[str, str], stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("IBPULSE_")}
    return subprocess.Popen(
        [*COMMAND, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, env={**environ, **variables}
    )


@pytest.fixture
def finish(capsys: pytest.CaptureFixture[str]) -> Finish:
    """Runs the command in this process: exit code, standard output, standard error."""

    def run(*words: str, **variables: str) -> tuple[int, str, str]:
        try:
            code = main(words, variables)
        except SystemExit as end:  # as a help text does
            code = int(end.code or 0)
        output, errors = capsys.readouterr()
        return code, output, errors

    return run


@as_a_process
@pytest.mark.parametrize(("word", "code", "output"), [("version", 0, f"ibpulse {__version__}\n"), ("srve", 2, "")])
def test_the_process_prints_and_ends_as_the_command_does(word: str, code: int, output: str) -> None:
    process = start([word], {})
    said, errors = process.communicate()
    assert (process.returncode, said, bool(errors)) == (code, output, code != 0)


@as_a_process
def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys; from ibpulse.commands import VERBS; from ibpulse.commands.parser import build_parser; "
        "import ibpulse.cli; [build_parser(verb) for verb in VERBS.values()]; "
        "heavy = {'numpy', 'fastapi', 'uvloop', 'pydantic', 'yaml', 'prometheus_client', 'httpx'}; "
        "heavy |= {'pyarrow', 'duckdb'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", probe], text=True) == "[]\n"


@as_a_process
def test_a_gateway_loads_no_part_of_an_agent_but_its_settings() -> None:
    code = "import sys, ibpulse.commands.gateway; print(*(name for name in sys.modules if name.startswith('ibpulse.')))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "ibpulse.gateway.service" in loaded
    others = [name for name in loaded if name.startswith(("ibpulse.agent.", "ibpulse.workbench."))]
    assert {name.split(".")[2] for name in others} == {"config"}


@as_a_process
def test_a_verb_loads_only_what_it_uses(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", record(wave(10e9, 20, 30, 30)))
    probe = (
        "import sys; from ibpulse.cli import main; main(sys.argv[1:], {}); "
        "import ibpulse.commands.record, ibpulse.commands.top, ibpulse.commands.explain; "
        "print(sorted({'httpx', 'matplotlib', 'ibpulse.agent.node.node'} & set(sys.modules)), file=sys.stderr)"
    )
    words = ("report", str(tmp_path / "a.parquet"), "--resamples=100")
    ran = subprocess.run([sys.executable, "-c", probe, *words], capture_output=True, text=True, check=True)
    assert (ran.stdout.startswith(f"{tmp_path}/a.parquet: "), ran.stderr) == (True, "[]\n")


@pytest.mark.parametrize("notation", ["yaml", "json"])
def test_what_is_printed_can_be_fed_back(finish: Finish, tmp_path: Path, notation: str) -> None:
    flags = {
        "sampler.interval": ["20ms"],
        "sampler.cpu": ["3"],
        "ring.dir": [str(tmp_path)],
        "ports.exclude": ["mlx5_0:1", "mlx5_b*"],
        "analysis.active-threshold": ["12.5MB/s"],
        "analysis.traffic-window": ["90s"],
        "web.listen-address": ["[::1]:10055"],
        "log.format": ["json"],
    }
    words = [f"--{name}={','.join(texts)}" for name, texts in flags.items()]
    code, output, errors = finish("config", "print", f"--format={notation}", *words)
    assert (code, errors) == (0, "")
    path = tmp_path / "printed"
    path.write_text(output, encoding="utf-8")
    assert load({"config.file": [str(path)]}, {}).written() == load(flags, {}).written()
    assert finish("config", "print", f"--format={notation}", f"--config.file={path}") == (0, output, "")


@as_a_process
def test_interrupting_is_quiet(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start(["config", "check", f"--config.file={fifo}"], {})
    with fifo.open("w"):  # opens when the other side reads: from here on it waits for text
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (130, "")


@as_a_process
def test_a_reader_that_went_away_is_met_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    # buffered, as in a shell: what is left in the buffer must not be tried again at exit
    process = start(["config", "print"], {"PYTHONUNBUFFERED": ""}, stdout=writing)
    os.close(writing)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (141, "")


OPTIONS = (
    Option("directory", metavar="DIR", help="Where to look; 100%% of it."),
    Option("--depth", type=int, default=3, help="How deep (default: %(default)s)."),
    Option("--seed", type=int, default=0, help="Of chance."),
    Option("--fault", action="append", default=[], help="Again and again."),
    Option("--slow", action="store_true", help="No hurry."),
    Option("--parent", help=argparse.SUPPRESS),
)


class Probe:
    """A verb that remembers what it was given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.ends_with: int | BaseException = 0

    def run(self, arguments: argparse.Namespace, settings: Settings) -> int:
        self.seen = [arguments, settings]
        if isinstance(self.ends_with, BaseException):
            raise self.ends_with
        return self.ends_with


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    command = Probe()
    modules = {"options.probe": SimpleNamespace(OPTIONS={"probe": OPTIONS}), "probe": SimpleNamespace(run=command.run)}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"ibpulse.commands.{name}", module)
    verb = Verb("probe", "Looks.", "ibpulse probe /x", settings=("log", "slow"), options="probe", runs="probe.run")
    monkeypatch.setitem(VERBS, "probe", verb)
    return command


def test_a_verb_gets_its_arguments_the_settings_and_their_origins(probe: Probe) -> None:
    assert main(["probe", "/x", "--depth=5", "--slow.interval=9s"], {"IBPULSE_SAMPLER__INTERVAL": "2ms"}) == 0
    arguments, settings = probe.seen
    assert (arguments.directory, arguments.depth) == ("/x", 5)
    assert arguments.origins["slow.interval"] == "flag --slow.interval"
    assert (settings.slow.interval, settings.sampler.interval) == (9 * 10**9, 2_000_000)


# names of files and ports are part of an error, and could otherwise write lines of their own
HOSTILE = RingError("ring /x\nibpulse: fine\x1b[31m\u202e is no ring; remove it")


@pytest.mark.parametrize(
    ("ends_with", "code", "said"),
    [
        (7, 7, []),
        (HOSTILE, 1, [r"ibpulse: ring /x\nibpulse: fine\u001b[31m\u202e is no ring; remove it"]),
        (ConfigError(["a: wrong", "b: \r\tworse"]), 2, ["ibpulse: a: wrong", r"ibpulse: b: \r\tworse"]),
        (MemoryError(), 1, ["ibpulse: out of memory: "]),
        (KeyboardInterrupt(), 130, []),
    ],
)
def test_the_end_of_a_verb_has_an_exit_code_and_a_line_per_error(
    ends_with: int | BaseException, code: int, said: list[str], probe: Probe, capsys: pytest.CaptureFixture[str]
) -> None:
    probe.ends_with = ends_with
    assert main(["probe", "/x"], {}) == code
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", len(said))
    for line, sentence in zip(errors.splitlines(), said, strict=True):
        assert line.startswith(sentence) if sentence.endswith(": ") else line == sentence


def test_an_argument_in_variants_runs_another_function(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibpulse.commands.probe_measured", SimpleNamespace(run=lambda *_: 9))
    monkeypatch.setitem(VERBS, "probe", replace(VERBS["probe"], variants={"slow": "probe_measured.run"}))
    assert (main(["probe", "/x"], {}), main(["probe", "/x", "--slow"], {})) == (0, 9)


def test_a_fault_that_nobody_foresaw_is_not_hidden(probe: Probe) -> None:
    probe.ends_with = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        main(["probe", "/x"], {})
