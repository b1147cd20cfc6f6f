"""What the command line does for any verb, shown with one that exists only here."""

import argparse
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError, RingError
from ibpulse.cli import main
from ibpulse.commands import VERBS, Verb
from ibpulse.commands.options import Option

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
