"""`ibpulse`: what it prints, where, and with which exit code; as a process where that makes a difference."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from ibpulse import __version__
from ibpulse.agent.config.loading import load
from ibpulse.cli import main
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


@pytest.mark.parametrize("word", ["--version", "version"])
def test_version_is_printed(finish: Finish, word: str) -> None:
    assert finish(word) == (0, f"ibpulse {__version__}\n", "")


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_is_printed_without_a_verb(finish: Finish, words: tuple[str, ...]) -> None:
    code, output, errors = finish(*words)
    assert (code, errors) == (0, "")
    assert output.startswith("usage: ibpulse COMMAND [argument ...]\n")


@pytest.mark.parametrize("words", [("config", "--help"), ("config", "--help-all"), ("help", "config")])
def test_help_of_a_verb_is_printed(finish: Finish, words: tuple[str, ...]) -> None:
    code, output, errors = finish(*words)
    assert (code, errors) == (0, "")
    assert ("--sampler.interval" in output) == ("--help-all" in words)
    assert output.startswith("usage: ibpulse config check|print [flag ...]\n")


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
        "print(sorted({'httpx', 'matplotlib', 'ibpulse.agent.node.wiring'} & set(sys.modules)), file=sys.stderr)"
    )
    words = ("report", str(tmp_path / "a.parquet"), "--resamples=100")
    ran = subprocess.run([sys.executable, "-c", probe, *words], capture_output=True, text=True, check=True)
    assert (ran.stdout.startswith(f"{tmp_path}/a.parquet: "), ran.stderr) == (True, "[]\n")


def test_faults_of_arguments_and_settings_are_printed_together_one_line_each(finish: Finish) -> None:
    assert finish("config", "check", "--sampler.intervl=1ms", "--log.format=xml", IBPULSE_SLOW__INTERVAL="1") == (
        2,
        "",
        "ibpulse: flag --sampler.intervl: no such flag; did you mean --sampler.interval?\n"
        "ibpulse: environment variable IBPULSE_SLOW__INTERVAL: 1 has no unit; write it like 10ms, 5s or 1h30m\n"
        "ibpulse: flag --log.format: unknown value 'xml'; choose text, json or logfmt\n",
    )


def test_an_unknown_flag_alone_stops_the_verb(finish: Finish) -> None:
    assert finish("config", "check", "--slow.intervl=1s") == (
        2,
        "",
        "ibpulse: flag --slow.intervl: no such flag; did you mean --slow.interval?\n",
    )


def test_an_unknown_verb_exits_with_2(finish: Finish) -> None:
    code, output, errors = finish("srve")
    assert (code, output) == (2, "")
    assert errors.startswith("ibpulse: srve: no such command; did you mean serve?")


def test_check_says_ok_and_where_each_value_came_from(finish: Finish, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("ports: {exclude: ['mlx5_0:1', mlx5_1]}\n", encoding="utf-8")
    code, output, errors = finish(
        "config", "check", f"--config.file={path}", "--sampler.interval=20ms", IBPULSE_LOG__LEVEL="debug"
    )
    lines = output.splitlines()
    assert (code, errors) == (0, "")
    assert lines[0] == "ok"
    assert "sampler.interval = 20ms (flag --sampler.interval)" in lines
    assert "log.level = debug (environment variable IBPULSE_LOG__LEVEL)" in lines
    assert f"ports.exclude = mlx5_0:1,mlx5_1 ({path}:1: ports.exclude)" in lines
    assert "ports.include = all (default)" in lines
    assert "sampler.cpu = none (default)" in lines


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


def test_both_notations_print_the_same(finish: Finish) -> None:
    _, as_yaml, _ = finish("config", "print")
    _, as_json, _ = finish("config", "print", "--format=json")
    assert yaml.safe_load(as_yaml) == json.loads(as_json)


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
