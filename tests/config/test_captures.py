"""The settings of the flight recorder: what they take, and how they fit the history and the node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from ibpulse.agent.config import load
from ibpulse.agent.config.loading import find_capture_directory
from ibpulse.agent.config.settings import CaptureSettings
from ibpulse.agent.flightrecorder.rules import RULES
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.base.errors import ConfigError

SECOND_NS = 10**9


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
