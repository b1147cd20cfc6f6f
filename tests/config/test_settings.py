"""The table and the checked settings name the same things; captures and statistics fit the node."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from ibpulse.agent.config.loading import find_capture_directory, load
from ibpulse.agent.config.settings import CONFIG_FILE, GROUP_TYPES, GROUPS, ROWS, CaptureSettings, describe
from ibpulse.agent.flightrecorder.rules import RULES
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.node.wiring import aggregator_options
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.statistics.signature import MoeSaturationOptions, SignatureOptions
from tests.tables import for_each


def test_every_row_of_the_table_has_a_checked_field_and_every_field_a_row() -> None:
    found = [(group, field.name) for group, kind in GROUP_TYPES.items() for field in fields(kind)]
    assert found == [(entry.group, entry.field) for entry in ROWS]


def test_every_group_is_described() -> None:
    assert list(GROUPS) == list(dict.fromkeys(entry.group for entry in ROWS))
    assert all(GROUPS.values())


def test_fields_are_named_like_their_settings() -> None:
    for entry in ROWS:
        assert entry.field.replace("_", "-") == entry.name.partition(".")[2].replace(".", "-")


def test_what_a_setting_writes_it_reads_back() -> None:
    settings = load({}, {})
    for entry in ROWS:
        value = getattr(getattr(settings, entry.group), entry.field)
        written = entry.kind.write(value)
        text = written if isinstance(written, list) else "" if written is None else str(written)
        assert entry.kind.parse(text) == value


def test_the_description_begins_with_the_file_and_has_every_row() -> None:
    assert describe() == (CONFIG_FILE, *ROWS)


def test_every_setting_has_a_help_sentence_and_a_default_to_show() -> None:
    for entry in describe():
        assert entry.sentence.endswith(".")
        assert entry.default_text


def capture(**texts: str) -> CaptureSettings:
    """The capture settings of these flags; `history` is the sampler's."""
    names = {name: f"capture.{name.replace('_', '-')}" for name in texts} | {"history": "sampler.history"}
    flags = {names[name]: [text] for name, text in texts.items()}
    return load(flags, {}).capture


def faults(**texts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        capture(**texts)
    return str(caught.value)


def test_the_defaults_are_those_of_the_recorder() -> None:
    settings, options = capture(), CaptureOptions(Path(), "")
    assert (settings.before, settings.after) == (options.before_ns, options.after_ns)
    assert (settings.max_bytes, settings.min_free) == (options.max_bytes, options.min_free_bytes)
    assert settings.rules == tuple(RULES)
    assert not settings.allow_unauthenticated
    assert settings.node == ()


def test_the_defaults_fit_a_short_history() -> None:
    settings = capture(history="20s")
    assert (settings.before, settings.after) == (15 * SECOND_NS, 5 * SECOND_NS)
    assert capture(history="20s", after="8s").before == 12 * SECOND_NS


def test_what_is_given_must_fit_the_history() -> None:
    assert faults(before="4m55s", after="6s") == (
        "flag --capture.before: 4m55s with capture.after, 6s, exceeds sampler.history, 5m; "
        "raise sampler.history to 5m1s or shorten the capture"
    )


def test_rules_are_chosen_by_name() -> None:
    assert capture(rules="rail-lost,step-slower").rules == ("rail-lost", "step-slower")
    assert capture(rules="none").rules == capture(rules="").rules == ()
    known = "choose traffic-stalled, rail-lost, moe-saturation, step-slower or none"
    assert faults(rules="dead") == f"flag --capture.rules: unknown value 'dead'; {known}"


def test_names_of_the_node_are_names() -> None:
    assert capture(node="gpu7,gpu7.example.org").node == ("gpu7", "gpu7.example.org")
    assert "'gpu 7' is not a node name; write it like gpu-node-7 or gpu-node-7.example.org" in faults(node="gpu 7")


def test_what_is_written_is_taken_back(tmp_path: Path) -> None:
    flags = {"rules": "none", "allow-unauthenticated": "true", "max-bytes": "64MiB", "node": "gpu7"}
    given = load({f"capture.{name}": [text] for name, text in flags.items()}, {})
    (tmp_path / "ibpulse.yml").write_text(yaml.safe_dump(given.written()))
    again = load({"config.file": [str(tmp_path / "ibpulse.yml")]}, {})
    assert again.capture == given.capture
    assert (again.capture.rules, again.capture.max_bytes) == ((), 64 * 2**20)


def test_captures_go_where_the_system_keeps_what_must_last(tmp_path: Path) -> None:
    assert find_capture_directory({"STATE_DIRECTORY": "/state:/other"}) == Path("/state/captures")
    assert find_capture_directory({}, tmp_path) == tmp_path / "ibpulse" / "captures"
    missing = tmp_path / "missing"
    assert find_capture_directory({"TMPDIR": "/scratch"}, missing) == Path("/scratch/ibpulse/captures")
    assert find_capture_directory({}, missing) == Path("/tmp/ibpulse/captures")
    assert load({}, {"STATE_DIRECTORY": "/state"}).capture.dir == Path("/state/captures")
    assert load({"capture.dir": ["/mine"]}, {"STATE_DIRECTORY": "/state"}).capture.dir == Path("/mine")


def test_a_directory_of_its_own_is_enough(tmp_path: Path) -> None:
    (tmp_path / "ibpulse").mkdir()
    if os.geteuid():
        tmp_path.chmod(0o500)
    assert find_capture_directory({}, tmp_path) == tmp_path / "ibpulse" / "captures"
    tmp_path.chmod(0o700)


def test_the_defaults_are_those_of_the_arithmetic() -> None:
    analysis, saturation = load({}, {}).analysis, MoeSaturationOptions()
    assert saturation.least_confidence == SignatureOptions().least_confidence
    assert analysis.moe_saturation_duty == saturation.least_duty
    assert analysis.moe_saturation_peak == saturation.least_peak_utilization
    assert analysis.moe_saturation_hold == saturation.hold_seconds * 1_000_000_000


@for_each([("5m", (10, 60, 300)), ("4m59s", (10, 60)), ("10s", (10,))])
def test_windows_longer_than_the_history_are_dropped(history: str, seconds: tuple[int, ...]) -> None:
    options = aggregator_options(load({"sampler.history": [history]}, {}))
    assert options.windows_ns == tuple(length * SECOND_NS for length in seconds)


@for_each([("1ms", (10, 50, 100, 1000)), ("20ms", (100, 1000)), ("40ms", (1000,)), ("50ms", (50, 100, 1000))])
def test_timescales_that_are_no_multiple_of_the_interval_are_dropped(interval: str, ms: tuple[int, ...]) -> None:
    options = aggregator_options(load({"sampler.interval": [interval]}, {}))
    assert options.timescales_ns == tuple(scale * MILLISECOND_NS for scale in ms)
