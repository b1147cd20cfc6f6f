"""What the command line does for any verb, shown with one that exists only here."""

import argparse
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse.agent.config import Settings
from ibpulse.agent.config.settings import ROWS
from ibpulse.base.errors import ConfigError, RingError
from ibpulse.cli import main
from ibpulse.commands import VERBS, Verb
from ibpulse.commands.options import Option
from ibpulse.commands.parser import build_parser, setting_rows
from tools.reference.__main__ import cli_markdown

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


def test_the_exit_code_of_a_verb_is_that_of_the_program(probe: Probe) -> None:
    probe.ends_with = 7
    assert main(["probe", "/x"], {}) == 7


def test_an_error_of_a_verb_is_one_line_with_its_exit_code(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    # names of files and ports are part of it, and could otherwise write lines of their own
    probe.ends_with = RingError("ring /x\nibpulse: fine\x1b[31m\u202e is no ring; remove it")
    assert main(["probe", "/x"], {}) == 1
    told = r"ibpulse: ring /x\nibpulse: fine\u001b[31m\u202e is no ring; remove it"
    assert capsys.readouterr() == ("", f"{told}\n")


def test_the_errors_of_a_configuration_are_a_line_each(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    probe.ends_with = ConfigError(["a: wrong", "b: \r\tworse"])
    assert main(["probe", "/x"], {}) == 2
    assert capsys.readouterr() == ("", "ibpulse: a: wrong\nibpulse: b: \\r\\tworse\n")


def test_memory_that_runs_out_is_told_in_a_sentence(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    probe.ends_with = MemoryError()
    assert main(["probe", "/x"], {}) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("ibpulse: out of memory: ")


def test_an_interrupted_verb_exits_with_130(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    probe.ends_with = KeyboardInterrupt()
    assert main(["probe", "/x"], {}) == 130
    assert capsys.readouterr() == ("", "")


def test_an_argument_in_variants_runs_another_function(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibpulse.commands.probe_measured", SimpleNamespace(run=lambda *_: 9))
    monkeypatch.setitem(VERBS, "probe", replace(VERBS["probe"], variants={"slow": "probe_measured.run"}))
    assert (main(["probe", "/x"], {}), main(["probe", "/x", "--slow"], {})) == (0, 9)


def test_a_fault_that_nobody_foresaw_is_not_hidden(probe: Probe) -> None:
    probe.ends_with = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        main(["probe", "/x"], {})


def test_a_verb_takes_only_the_flags_of_its_groups(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "/x", "--web.hosts=a"], {}) == 2
    assert capsys.readouterr().err == "ibpulse: flag --web.hosts: no such flag; see `ibpulse probe --help`\n"
    assert probe.seen == []


def test_a_wrong_argument_of_the_verb_itself_exits_with_2(probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "/x", "--depth=deep"], {}) == 2
    assert (
        capsys.readouterr().err == "ibpulse: argument --depth: invalid int value: 'deep'; see `ibpulse probe --help`\n"
    )


def test_positional_arguments_stand_in_the_usage(probe: Probe) -> None:
    assert build_parser(VERBS["probe"]).usage == "ibpulse probe DIR [flag ...]"


def test_the_usage_shows_what_must_be_given_and_what_may_be_given_more_than_once() -> None:
    assert build_parser(VERBS["report"]).usage == "ibpulse report [RECORDING...] [flag ...]"
    assert build_parser(VERBS["render"]).usage == "ibpulse render [RECORDING...] -o OUT [flag ...]"
    assert build_parser(VERBS["import"]).usage == "ibpulse import FILE -o OUT --time=COLUMN [flag ...]"


def test_the_page_of_commands_has_the_arguments_of_every_verb(probe: Probe) -> None:
    page = cli_markdown()
    assert (
        "## ibpulse probe\n\nLooks.\n\n```sh\nibpulse probe DIR [flag ...]\n\n# example\nibpulse probe /x\n```" in page
    )
    assert "--parent" not in page
    assert "| `DIR` |  | Where to look; 100% of it. |\n| `--depth` | `3` | How deep. |" in page
    assert "| `--seed` | `0` | Of chance. |\n| `--fault` |  | Again and again. |\n| `--slow` |  | No hurry. |" in page
    assert "the settings of [slow](configuration.md#slow), [log](configuration.md#log) as flags." in page


SAMPLES = {"path.sysfs", "sampler.interval", "sampler.scheduler", "sampler.cpu", "topology.file", "slow.interval"} | {
    "ports.include",
    "ports.exclude",
    "ports.roles",
}


def test_each_verb_offers_the_settings_that_it_reads() -> None:
    offered = {name: {row.name for row in setting_rows(verb)} for name, verb in VERBS.items()}
    of_nodes = {row.name for row in ROWS if row.group == "nodes"}
    everything = {row.name for row in ROWS} - of_nodes
    assert offered["serve"] == everything
    assert offered["config"] == everything | of_nodes
    assert offered["demo"] == everything - {"path.sysfs", "ring.dir"}
    assert offered["record"] == SAMPLES | {"analysis.active-threshold", "log.level", "log.format"}
    assert SAMPLES < offered["top"] < everything
    assert "web.listen-address" in offered["top"] & offered["doctor"]
    assert {"ring.dir", "capture.dir", "sampler.history"} < offered["doctor"]
    assert not {name for name in offered["doctor"] if name.startswith(("log.", "capture.rules", "slow.", "web.max"))}
    assert offered["simulate"] == offered["replay"] == {"log.level", "log.format"}
    assert offered["import"] == set()
    assert offered["model"] == {"analysis.active-threshold"}
    assert of_nodes < offered["gateway"]
    assert "capture.allow-unauthenticated" in offered["gateway"]
