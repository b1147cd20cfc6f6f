"""The verb: its arguments, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ibpulse.agent.config.loading import load
from ibpulse.cli import main
from ibpulse.commands import doctor
from tests.sysfs.trees import DOWN_INFINIBAND, MLX5_COUNTERS, PortFiles, Tree

pytestmark = pytest.mark.usefixtures("in_this_process")
FLAGS = ("--no-look", "--web.listen-address=127.0.0.1:0")


def run(tree: Tree, *flags: str) -> int:
    return main(["doctor", f"--path.sysfs={tree.root}", f"--ring.dir={tree.root.parent / 'ring'}", *FLAGS, *flags], {})


@pytest.fixture
def healthy(tree: Tree) -> Tree:
    counters = MLX5_COUNTERS | {"port_xmit_wait": "0\n", "link_downed": "0\n"}
    for number in range(2):
        tree.add(f"mlx5_{number}", {1: PortFiles(counters=counters)}, pci=f"0000:1{8 + number}:00.0")
    return tree


def test_a_healthy_tree_ends_with_0(healthy: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(healthy, "--strict") == 0
    out = capsys.readouterr().out
    assert out.startswith("ibpulse ")
    assert out.endswith("verdict: OK: nothing to do\n")


def test_a_warning_ends_with_0_and_strictly_with_1(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.add("mlx5_0")
    assert run(tree) == 0
    assert (
        "WARN  saturation  mlx5_0:1: has counters at their maximum: link_downed, port_xmit_wait."
        in capsys.readouterr().out
    )
    assert run(tree, "--strict") == 1


def test_a_failure_ends_with_1(healthy: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    healthy.add("mlx5_2", {1: DOWN_INFINIBAND}, pci="0000:20:00.0")
    assert run(healthy, "--check=rails") == 1
    assert "mlx5_2:1: is a rail, but its link is DOWN." in capsys.readouterr().out


def test_the_document_tells_of_the_run(healthy: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(healthy, "--format=json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sysfs"] == str(healthy.root)
    assert told["look"] is None
    assert {"version", "verdict", "ibpulse", "python", "kernel", "findings"} <= told.keys()


def test_a_check_that_is_none_is_refused_with_the_list(healthy: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(healthy, "--check=moon") == 2
    assert "--check=moon: no such check; choose from tree, devices, rails" in capsys.readouterr().err


def test_a_pause_that_is_none_is_refused(healthy: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(healthy, "--watch=often") == 2
    assert "--watch: 'often' is not a duration" in capsys.readouterr().err


def test_watching_clears_a_terminal_between_two_pages(
    healthy: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(doctor.sys.stdout, "isatty", lambda: True, raising=False)
    assert run(healthy, "--watch") == 130
    out = capsys.readouterr().out
    assert pauses == [10.0, 10.0]
    assert out.count("verdict: OK") == 2
    assert out.count(doctor.CLEAR) == 1
    assert "\033[32mOK\033[0m" in out


def test_the_settings_of_the_daemon_are_those_of_doctor() -> None:
    flags = {
        "path.sysfs": ["/host/sys"],
        "sampler.interval": ["20ms"],
        "sampler.cpu": ["3"],
        "ports.roles": ["compute=mlx5_*"],
        "web.listen-address": ["127.0.0.1:9"],
    }
    options = doctor.make_options(load(flags, {}))
    assert (str(options.sysfs), options.interval_ns, options.cpu) == ("/host/sys", 20_000_000, 3)
    assert (options.roles, options.host, options.port) == ({"compute": ("mlx5_*",)}, "127.0.0.1", 9)
    assert options.sample


def test_the_places_in_the_topology_file_are_those_of_doctor(tree: Tree, tmp_path: Path) -> None:
    file = tmp_path / "topology.yml"
    file.write_text("mlx5_0: {pcie: 32 GT/s x16}\n")
    tree.add("mlx5_0")
    request = doctor.make_request(load({"topology.file": [str(file)], "path.sysfs": [str(tree.root)]}, {}))
    (place,) = request.inventory.scan().topology.devices
    found = place.pcie_bytes_per_second
    assert found == pytest.approx(63e9, rel=0.001)
