"""Each setting's value: what is taken, and the sentence for what is refused."""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ibpulse.agent.config
from ibpulse.agent.config import Settings, load
from ibpulse.agent.config.settings import ListenAddress
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import GRID_NS, format_duration
from tests.tables import for_each


def faults(name: str, *texts: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        load({name: list(texts)}, {})
    return refusal.value.faults


REFUSALS = [
    ("path.sysfs", "", "the path is empty; give a path or remove the setting"),
    ("sampler.interval", "7ms", "7ms does not divide one second; the nearest that do are 5ms and 8ms"),
    ("sampler.interval", "1500us", "1ms500us does not divide one second; the nearest that do are 1ms and 2ms"),
    ("sampler.interval", "500us", "500us does not divide one second; the nearest that do are 1ms and 2ms"),
    ("sampler.interval", "2s", "2s does not divide one second; the nearest that do are 500ms and 1s"),
    ("sampler.history", "9s", "9s is out of bounds; choose 10s to 1h"),
    ("sampler.scheduler", "rr", "unknown value 'rr'; choose other or fifo"),
    ("sampler.cpu", "8192", "8192 is out of bounds; choose 0 to 8191, or leave it empty for no pinning"),
    (
        "ports.include",
        "mlx5_0:1:2",
        "'mlx5_0:1:2' is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*",
    ),
    ("ports.exclude", "a,,b", "'' is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*"),
    ("ports.include", "../x", "'../x' is not a port; write a device or a port, like mlx5_0, mlx5_0:1 or mlx5_*"),
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
    ("ports.expected-rails", "257", "257 is out of bounds; choose 0 to 256, or leave it empty to count them"),
    (
        "analysis.active-threshold",
        "1Gb/s",
        "1Gb/s has the unknown unit Gb/s; rates count bytes: use one of TB/s, GB/s, MB/s, kB/s, B/s",
    ),
    ("analysis.moe-saturation-duty", "1.1", "1.1 is out of bounds; choose 0 to 1"),
    ("slow.interval", "100ms", "100ms is out of bounds; choose 1s to 10m"),
    (
        "web.listen-address",
        "10055",
        "'10055' is not an address; write it like :10055, 127.0.0.1:10055 or [::1]:10055",
    ),
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
    ("web.hosts", "a, b c", "'b c' is not a host name; write it without a port, like gpu-node-7.example.org, or *"),
    ("log.level", "loud", "unknown value 'loud'; choose debug, info, warning or error"),
]


@for_each(REFUSALS)
def test_a_value_that_cannot_be_used_is_refused_with_the_way_out(name: str, text: str, sentence: str) -> None:
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
def test_an_interval_is_taken_if_it_is_whole_milliseconds_that_divide_a_second(period_ns: int) -> None:
    assert (period_ns in GRID_NS) == (period_ns % 10**6 == 0 and 10**9 % period_ns == 0)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (":10055", "", 10055),
        ("127.0.0.1:9000", "127.0.0.1", 9000),
        ("[::1]:10055", "::1", 10055),
        ("node7.example:1", "node7.example", 1),
        ("localhost:0", "localhost", 0),
    ],
)
def test_addresses_are_taken_apart_and_written_back(text: str, host: str, port: int) -> None:
    address = load({"web.listen-address": [text]}, {}).web.listen_address
    assert address == ListenAddress(host, port)
    assert str(address) == text


@for_each(["[::]:10055", "[::0]:10055", "[0:0:0:0:0:0:0:0]:10055"])
def test_every_address_of_ipv6_is_every_address(text: str) -> None:
    assert load({"web.listen-address": [text]}, {}).web.listen_address == ListenAddress("", 10055)


def test_settings_cannot_be_changed() -> None:
    settings = load({}, {})
    name = "interval"
    with pytest.raises(FrozenInstanceError):
        setattr(settings.sampler, name, 1)


def test_only_the_environment_that_is_handed_over_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAMPLER", '{"interval": "1ms"}')
    monkeypatch.setenv("IBPULSE_SAMPLER__INTERVAL", "1ms")
    made = load({"ring.dir": [str(tmp_path)]}, {})
    assert isinstance(made, Settings)
    assert made.sampler.interval == 10_000_000


def test_the_room_offers_nothing_else_by_name() -> None:
    with pytest.raises(AttributeError, match=r"module 'ibpulse\.agent\.config' has no attribute 'secrets'"):
        _ = ibpulse.agent.config.secrets
