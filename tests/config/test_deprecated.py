"""Settings of version 0.1 that were removed or renamed: accepted everywhere, with one warning each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import jsonschema
import pytest

from ibpulse.cli import main
from ibpulse.commands import VERBS
from ibpulse.commands.parser import build_parser
from ibpulse.config import load
from ibpulse.config import loading as loading_module
from ibpulse.config.loading import resolve
from ibpulse.config.setting_table import DEPRECATED, ROWS, DeprecatedSetting, describe
from tools.chart.chart_values import settings_schema

REMOVED = {
    "analysis.burst-low",
    "analysis.signature-dense",
    "analysis.signature-moe",
    "analysis.signature-tolerance",
    "analysis.signature-confidence",
    "web.max-wide-requests",
    "web.max-viewers",
}
RENAMED = DeprecatedSetting("slow.period", "it is how often devices are re-read", replacement="slow.interval")


def warnings(flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]) -> tuple[str, ...]:
    resolved = resolve(flags, environ)
    assert resolved.settings.written() == load({}, {}).written()
    return resolved.warnings


def test_the_settings_that_are_gone_are_those_of_the_table() -> None:
    assert {old.name for old in DEPRECATED} == REMOVED
    assert not REMOVED & {row.name for row in ROWS}
    assert len(describe()) == 47


@pytest.mark.parametrize("old", DEPRECATED, ids=lambda old: old.name)
@pytest.mark.parametrize("value", ["0.05GB/s", "nonsense", ""])
def test_a_flag_is_accepted_with_any_value_and_one_warning(old: DeprecatedSetting, value: str) -> None:
    assert warnings({old.name: [value, "again"]}, {}) == (f"flag {old.flag}: {old.warning}",)


@pytest.mark.parametrize("old", DEPRECATED, ids=lambda old: old.name)
def test_a_variable_is_accepted_with_one_warning(old: DeprecatedSetting) -> None:
    assert warnings({}, {old.variable: "x"}) == (f"environment variable {old.variable}: {old.warning}",)


@pytest.mark.parametrize("value", ["0.1GB/s", "[1, 2]", "{a: b}", "null", ""])
def test_an_entry_of_the_file_is_accepted_with_any_value(tmp_path: Path, value: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"analysis:\n  burst-low: {value}\n")
    assert warnings({"config.file": [str(path)]}, {}) == (
        f"{path}:2: analysis.burst-low: was removed and is ignored; a burst ends at analysis.active-threshold",
    )


def test_a_setting_in_several_sources_is_warned_of_once_at_the_one_that_counts(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("web: {max-viewers: 3, max-wide-requests: 9}\n")
    flags = {"config.file": [str(path)], "web.max-viewers": ["3"]}
    found = warnings(flags, {"IBPULSE_WEB__MAX_VIEWERS": "4"})
    assert [sentence.partition(": was removed")[0] for sentence in sorted(found)] == [
        f"{path}:1: web.max-wide-requests",
        "flag --web.max-viewers",
    ]


@pytest.mark.parametrize("name", ["serve", "demo", "doctor", "record", "top", "config"])
def test_commands_take_the_flags_without_showing_them(name: str) -> None:
    parser = build_parser(VERBS[name])
    text = parser.format_help()
    for old in DEPRECATED:
        (action,) = (action for action in parser._actions if old.flag in action.option_strings)
        assert action.help == argparse.SUPPRESS
        assert old.flag not in text


def test_check_and_print_go_on_and_say_it_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("check", "print"):
        assert main(["config", action, "--web.max-viewers=3"], {"IBPULSE_ANALYSIS__BURST_LOW": "1GB/s"}) == 0
        out, err = capsys.readouterr()
        assert "max-viewers" not in out
        assert "burst-low" not in out
        assert [line.partition("WARNING ")[2].partition(":")[0] for line in err.splitlines()] == [
            "environment variable IBPULSE_ANALYSIS__BURST_LOW",
            "flag --web.max-viewers",
        ]


def test_a_report_takes_the_flags_of_0_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "none"), "--analysis.signature-moe=1,2"], {}) == 1
    assert "WARNING flag --analysis.signature-moe: was removed and is ignored" in capsys.readouterr().err


@pytest.mark.parametrize("value", [1, "x", [1.0], {"a": None}, None])
def test_the_schema_accepts_any_value(value: object) -> None:
    schema = settings_schema()
    for old in DEPRECATED:
        group, _, last = old.name.partition(".")
        jsonschema.validate({group: {last: value}}, schema)
    assert schema["properties"]["web"]["properties"]["max-viewers"]["deprecated"] is True


def test_the_value_of_a_renamed_setting_goes_to_the_new_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loading_module, "DEPRECATED", (RENAMED,))
    path = tmp_path / "c.yaml"
    path.write_text("slow: {period: 8s}\n")
    for flags, environ in (
        ({"slow.period": ["8s"]}, {}),
        ({}, {"IBPULSE_SLOW__PERIOD": "8s"}),
        ({"config.file": [str(path)]}, {}),
    ):
        resolved = resolve(flags, environ)
        assert resolved.settings.slow.interval == 8 * 10**9
        (sentence,) = resolved.warnings
        assert sentence.endswith(": is now slow.interval; it is how often devices are re-read")
        assert resolved.origins["slow.interval"] == sentence.removesuffix(f": {RENAMED.warning}")


def test_the_new_name_counts_where_both_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loading_module, "DEPRECATED", (RENAMED,))
    path = tmp_path / "c.yaml"
    for text in ("slow: {period: 8s, interval: 9s}\n", "slow: {interval: 9s, period: 8s}\n"):
        path.write_text(text)
        resolved = resolve({"config.file": [str(path)]}, {})
        assert resolved.settings.slow.interval == 9 * 10**9
        assert len(resolved.warnings) == 1
