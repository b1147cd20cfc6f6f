"""Every setting: its kind, its default and its declaration."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import find_capture_directory, load
from ibpulse.agent.config.settings import GROUP_TYPES, ROWS, CaptureSettings, ListenAddress
from ibpulse.agent.flightrecorder.store import CaptureOptions
from ibpulse.agent.flightrecorder.triggers import RULES
from ibpulse.agent.node.node import aggregator_options, supervisor_options
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import GRID_NS, MILLISECOND_NS, SECOND_NS, format_duration
from ibpulse.core.statistics.signature import MoeSaturationOptions, SignatureOptions
from tests.tables import for_each


def test_rows_and_fields_correspond() -> None:
    found = [(group, field.name) for group, kind in GROUP_TYPES.items() for field in fields(kind)]
    assert found == [(entry.group, entry.field) for entry in ROWS]


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


def capture(**texts: str) -> CaptureSettings:
    """The capture settings of these flags; `history` is the sampler's."""
    names = {name: f"capture.{name.replace('_', '-')}" for name in texts} | {"history": "sampler.history"}
    flags = {names[name]: [text] for name, text in texts.items()}
    return load(flags, {}).capture


def capture_fault(**texts: str) -> str:
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


def test_what_is_given_must_fit_the_history() -> None:
    assert capture_fault(before="4m55s", after="6s") == (
        "flag --capture.before: 4m55s with capture.after, 6s, exceeds sampler.history, 5m; "
        "raise sampler.history to 5m1s or shorten the capture"
    )


def test_rules_and_nodes_are_chosen_by_name() -> None:
    assert capture(rules="rail-lost,step-slower").rules == ("rail-lost", "step-slower")
    assert capture(rules="none").rules == capture(rules="").rules == ()
    assert capture(node="gpu7,gpu7.example.org").node == ("gpu7", "gpu7.example.org")


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


def faults(name: str, *texts: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        load({name: list(texts)}, {})
    return refusal.value.faults


REFUSALS = [
    ("sampler.interval", "7ms", "7ms does not divide one second; the nearest that do are 5ms and 8ms"),
    ("sampler.interval", "500us", "500us does not divide one second; the nearest that do are 1ms and 2ms"),
    ("sampler.interval", "2s", "2s does not divide one second; the nearest that do are 500ms and 1s"),
    ("ports.exclude", "a,,b", "'' is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*"),
    ("capture.node", "gpu 7", "'gpu 7' is not a node name; write it like gpu-node-7 or gpu-node-7.example.org"),
    ("ports.roles", "mlx5_1", "'mlx5_1' has no role; write it like compute=mlx5_1"),
    ("ports.roles", "disk=mlx5_1", "unknown role 'disk'; choose compute, storage, management, unknown"),
    (
        "ports.roles",
        "storage=mlx5_1,mlx5_7,compute=mlx5_7",
        "mlx5_7: the same port is given for storage and compute; give each port once",
    ),
    (
        "ports.roles",
        "compute=mlx5_*,storage=mlx5_7",
        "mlx5_* and mlx5_7: the same port is given for compute and storage; give each port once",
    ),
    ("ports.roles", "storage=", "'' is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*"),
    (
        "web.listen-address",
        "::1:10055",
        "'::1:10055' is not an address; write it like :10055, 127.0.0.1:10055 or [::1]:10055",
    ),
    ("web.listen-address", ":65536", "port 65536 in ':65536' is out of range; use 1 to 65535, or 0 for any free port"),
    (
        "web.hosts",
        "node7:10055",
        "'node7:10055' is not a host name; write it without a port, like gpu-node-7.example.org, or *",
    ),
]


@for_each(REFUSALS)
def test_an_invalid_value_is_refused_with_the_remedy(name: str, text: str, sentence: str) -> None:
    assert faults(name, text) == (f"flag --{name}: {sentence}",)


def test_every_fault_of_a_list_is_reported() -> None:
    assert faults("ports.include", "../x", "mlx5_0", "a:b:c") == (
        "flag --ports.include: '../x' is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*",
        "flag --ports.include: 'a:b:c' is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*",
    )


@for_each(GRID_NS)
def test_every_interval_of_the_grid_is_taken(period_ns: int) -> None:
    assert period_ns == load({"sampler.interval": [format_duration(period_ns)]}, {}).sampler.interval


@given(st.integers(min_value=1, max_value=10**9))
def test_the_grid_divides_a_second_in_milliseconds(period_ns: int) -> None:
    assert (period_ns in GRID_NS) == (period_ns % 10**6 == 0 and 10**9 % period_ns == 0)


@for_each([(":10055", "", 10055), ("[::1]:10055", "::1", 10055), ("node7.example:0", "node7.example", 0)])
def test_addresses_are_taken_apart_and_written_back(text: str, host: str, port: int) -> None:
    address = load({"web.listen-address": [text]}, {}).web.listen_address
    assert address == ListenAddress(host, port)
    assert str(address) == text


@for_each(["[::]:10055", "[::0]:10055", "[0:0:0:0:0:0:0:0]:10055"])
def test_every_address_of_ipv6_is_every_address(text: str) -> None:
    assert load({"web.listen-address": [text]}, {}).web.listen_address == ListenAddress("", 10055)


def test_only_the_environment_that_is_handed_over_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAMPLER", '{"interval": "1ms"}')
    monkeypatch.setenv("IBPULSE_SAMPLER__INTERVAL", "1ms")
    made = load({"ring.dir": [str(tmp_path)]}, {})
    assert isinstance(made, Settings)
    assert made.sampler.interval == 10_000_000


@for_each([("10ms", 10), ("8ms", 13), ("40ms", 3), ("200ms", 1)])
def test_signals_are_not_read_more_often_than_set(interval: str, ticks: int) -> None:
    options = {"sampler.interval": [interval], "sampler.signals": ["100ms"]}
    assert supervisor_options(load(options, {})).signal_ticks == ticks
