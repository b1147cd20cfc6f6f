"""The faults file, with every row of the table and every mistake in it, and the flags of `ibpulse simulate`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.cli import main
from ibpulse.commands import VERBS, simulate
from ibpulse.commands.options import look
from ibpulse.commands.parser import parse
from ibpulse.workbench.simulate.faults import FAULTS, HEALTHY, DeviceFaults, parse_faults
from ibpulse.workbench.simulate.workloads import WORKLOADS

DEVICES = ("mlx5_0", "mlx5_1")

LISTED = {
    "idle-rail": DeviceFaults(factor=0.0),
    "slow-rail": DeviceFaults(factor=0.5),
    "link-flap": DeviceFaults(down=True),
    "trained-down": DeviceFaults(trained_down=True),
    "vanish": DeviceFaults(vanished=True),
    "reset": DeviceFaults(reset=True),
    "stuck": DeviceFaults(stuck=True),
    "refresh": DeviceFaults(refresh_ns=100_000_000),
    "congested": DeviceFaults(congested=0.0005),
    "bit-errors": DeviceFaults(bit_errors=1e-6),
    "unanswered": DeviceFaults(unanswered=4.0),
    "einval": DeviceFaults(unreadable=True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_listed_device_has_the_default_fault(name: str) -> None:
    assert parse_faults(f'{{"{name}": ["mlx5_1"]}}', DEVICES, "f") == {"mlx5_1": LISTED[name]}


def test_values_and_faults_combine_and_all_wrong_ones_are_reported() -> None:
    text = '{"slow-rail": {"mlx5_0": 0.25}, "refresh": {"mlx5_0": 40}, "stuck": ["mlx5_1"]}'
    wanted = {"mlx5_0": DeviceFaults(factor=0.25, refresh_ns=40_000_000), "mlx5_1": DeviceFaults(stuck=True)}
    assert parse_faults(text, DEVICES, "f") == wanted
    with pytest.raises(ConfigError) as caught:
        parse_faults('{"broken": [], "stuck": ["a", "b"]}', DEVICES, "f")
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize("text", ["", "{}", '{"stuck": []}'])
def test_an_empty_file_is_a_healthy_fabric(text: str) -> None:
    assert parse_faults(text, DEVICES, "f") == {}
    assert HEALTHY.flow == 1.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "f: not JSON .*; write for example"),
        ("[]", "f: holds list, not an object"),
        ('{"broken": []}', 'f: unknown fault "broken"; choose from idle-rail, slow-rail'),
        ('{"stuck": ["mlx5_9"]}', 'f: stuck: device "mlx5_9" is not in this fabric'),
        ('{"stuck": "mlx5_0"}', 'f: stuck: "mlx5_0" is not valid; give devices as a list'),
        ('{"slow-rail": {"mlx5_0": 2}}', "f: slow-rail: mlx5_0: 2 is not valid; give part of the traffic, 0 to 1"),
        ('{"refresh": {"mlx5_0": 0}}', "f: refresh: mlx5_0: 0 is not valid; give milliseconds between new values"),
        ('{"vanish": {"mlx5_0": true}}', "f: vanish: mlx5_0: true is not valid; give 1, or list the device"),
    ],
)
def test_invalid_faults_file_error_names_place(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_faults(text, DEVICES, "f")


def test_the_log_names_only_faults_that_are_present() -> None:
    assert str(HEALTHY) == "no faults"
    assert str(DeviceFaults(factor=0.5, refresh_ns=40_000_000)) == "0.5 of its traffic, counters refreshed every 40 ms"


def test_options_have_defaults_and_clocks_their_offsets() -> None:
    assert list(WORKLOADS) == list(look.WORKLOADS)
    options = ["slow-rail=a", "refresh=b:20"]
    assert simulate.parse_fault_options(options) == {"slow-rail": {"a": 0.5}, "refresh": {"b": 20.0}}
    chosen = nodes_of("--nodes=3", "--clock-offset=node1=-12ms", "--clock-offset=node3=100us")
    assert (chosen["node1"], chosen["node3"]) == (-12_000_000, 100_000)
    assert chosen["node2"] == 0
    assert nodes_of() == {}


@pytest.mark.parametrize("verb", ["simulate", "demo"])
def test_invalid_faults_are_refused_first(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(tmp_path / "tree")] if verb == "simulate" else []
    assert main([verb, *words, "--ports=2", "--fault=idle-rail=mlx5_2"], {}) == 2
    assert capsys.readouterr() == ("", 'ibpulse: flag --fault: idle-rail: device "mlx5_2" is not in this fabric\n')


def fabric(*flags: str) -> argparse.Namespace:
    return parse(VERBS["demo"], flags).arguments


def nodes_of(*flags: str, clocks_differ: bool = False) -> dict[str, int]:
    nodes = simulate.parse_nodes(fabric(*flags), clocks_differ)
    return {node.name: node.clock_offset_ns for node in nodes}


def test_demo_passes_clock_offsets_to_simulator() -> None:
    arguments = fabric("--nodes=3", "--clock-offset=node3=-12.5ms")
    nodes = simulate.parse_nodes(arguments, clocks_differ=True)
    flags = simulate.fabric_flags(arguments, 10**7)
    told = fabric(*(flag for flag in flags if flag.startswith(("--clock", "--nodes"))))
    offsets = {node.name: node.clock_offset_ns for node in nodes}
    assert offsets == {"node1": 100_000, "node2": -1_200_000, "node3": -12_500_000}
    assert {node.name: node.clock_offset_ns for node in simulate.parse_nodes(told)} == offsets


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--nodes=2", "--jobs=2"], "flag --jobs: 2 jobs are not possible on several nodes, which share one job"),
        (["--nodes=2", "--clock-offset=node3=1ms"], "'node3=1ms' is not possible; choose node1 to node2"),
        (["--nodes=2", "--clock-offset=node1=2s"], "'node1=2s' is not possible; choose node1 to node2, and at most 1s"),
        (["--clock-offset=node1=1ms"], "'node1=1ms' is not possible; set --nodes"),
        (["--nodes=2", "--clock-offset=node1=--1ms"], "'node1=--1ms': '-1ms' is not a duration"),
        (["--nodes=2", "--clock-offset=node1"], "flag --clock-offset: 'node1': '' is not a duration"),
    ],
)
def test_invalid_nodes_are_refused(flags: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        nodes_of(*flags)
