"""The command line of `ibpulse simulate`: what its flags mean, and which are refused."""

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
from ibpulse.workbench.simulate.workloads import WORKLOADS


def test_the_verb_offers_every_workload() -> None:
    assert list(WORKLOADS) == list(look.WORKLOADS)


def test_fault_option_has_a_default_value() -> None:
    options = ["slow-rail=a", "refresh=b:20"]
    assert simulate.parse_fault_options(options) == {"slow-rail": {"a": 0.5}, "refresh": {"b": 20.0}}


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


def test_clock_offset_can_be_set() -> None:
    chosen = nodes_of("--nodes=3", "--clock-offset=node1=-12ms", "--clock-offset=node3=100us")
    assert (chosen["node1"], chosen["node3"]) == (-12_000_000, 100_000)
    assert chosen["node2"] == 0
    assert nodes_of() == {}


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
