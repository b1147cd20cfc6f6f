"""Findings as a page and as a document, and the command that prints them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from ibpulse.agent.config.loading import load
from ibpulse.agent.doctor import CHECKS, Finding, Level, document, page
from ibpulse.agent.doctor.examination import WIDTH, verdict
from ibpulse.cli import main
from ibpulse.commands import doctor
from tests.sysfs.trees import MLX5_COUNTERS, PortFiles, Tree

pytestmark = pytest.mark.usefixtures("in_this_process")
FLAGS = ("--no-look", "--web.listen-address=127.0.0.1:0")
FINE = Finding(Level.OK, "mlx5_0:1", "is a rail.", topic="rails")
ODD = Finding(Level.WARN, "mlx5_1:1", "is idle.", "The job does not use it.", "Look at the job.", "balance")
BAD = Finding(Level.FAIL, "mlx5_2", "does not answer.", "It is not sampled.", "Reset the card.", "devices")


def test_no_line_is_wider_than_the_page() -> None:
    text = page([Finding(Level.WARN, "mlx5_0:1", "is " + "very " * 60 + "long.", "so " * 90, "do " * 90, "rails")])
    assert max(map(len, text.splitlines())) <= WIDTH


def test_colours_are_there_when_asked_for() -> None:
    assert page([BAD], colour=True).startswith("\033[31mFAIL\033[0m  devices")
    assert "\033" not in page([BAD])


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], "verdict: OK: nothing to do"),
        ([FINE], "verdict: OK: nothing to do"),
        ([FINE, ODD], "verdict: WARN (1 warning)"),
        ([BAD, ODD, BAD], "verdict: FAIL (2 failures, 1 warning)"),
    ],
)
def test_the_verdict_is_the_worst_with_the_counts(findings: list[Finding], expected: str) -> None:
    assert verdict(findings) == expected


def test_a_document_has_every_finding_and_can_be_written() -> None:
    told = json.loads(json.dumps(document([FINE, BAD], {"kernel": "6.8.0"})))
    assert (told["verdict"], told["kernel"], told["version"]) == ("FAIL", "6.8.0", 1)
    assert told["findings"][1] == asdict(BAD) | {"level": "FAIL"}


def test_checks_have_unique_names_and_sentences() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.sentence.endswith(".") for check in CHECKS)


def test_names_cannot_control_the_terminal() -> None:
    hostile = "mlx5\n\x1b[2J\u202everdict: OK\x9b"
    found = page([Finding(Level.FAIL, hostile, hostile, hostile, hostile, "devices")], hostile, colour=True)
    assert all(line.isprintable() for line in found.replace("\033[31m", "").replace("\033[0m", "").split("\n"))
    assert found.count("\nverdict: ") == 1


# the command


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


def test_the_document_tells_of_the_run(healthy: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(healthy, "--format=json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sysfs"] == str(healthy.root)
    assert told["look"] is None
    assert {"version", "verdict", "ibpulse", "python", "kernel", "findings"} <= told.keys()


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
    assert place.pcie_bytes_per_second == pytest.approx(63e9, rel=0.001)
