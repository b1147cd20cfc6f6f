"""What doctor says about results of benchmarks, by the rails of its node."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ibpulse.agent.doctor import Finding, Level, examine
from ibpulse.cli import main
from ibpulse.core.model import DevicePlace, Port, Topology
from ibpulse.workbench.nccl.grades import judge_benchmarks
from ibpulse.workbench.nccl.results import BenchmarkRun, Measurement
from tests.doctor.making import make_facts, make_port
from tests.nccl.benchmark_writers import nccl_json

RAILS = tuple(make_port(f"mlx5_{place}") for place in range(8))


def findings(
    ports: tuple[Port, ...] = RAILS, places: tuple[DevicePlace, ...] = (), rate: float = 360e9, **more: str
) -> list[Finding]:
    """Findings about an AllReduce of 8 GB over four such nodes, with a ring unless `more` says otherwise."""
    row = replace(Measurement("all_reduce", 8 << 30, 0.05, None, rate, algorithm="ring"), **more)  # type: ignore[arg-type]
    run = BenchmarkRun(Path("/secret/run.json"), "nccl-tests JSON", (row,), ranks=32, nodes=4)
    topology = Topology(places, distances=((),) * len(places))
    facts = make_facts(ports, fabric={"topology": topology})
    return list(examine(replace(facts, benchmarks=judge_benchmarks([run], facts.fabric)), ["nccl"]))


def test_nothing_is_said_without_a_file() -> None:
    assert examine(make_facts(RAILS), ["nccl"]) == ()


@pytest.mark.parametrize(("rate", "word"), [(360e9, "good: 90.00 %"), (320e9, "fair: 80.00 %")])
def test_a_result_that_is_not_poor_passes(rate: float, word: str) -> None:
    (found,) = findings(rate=rate)
    assert (found.level, found.subject) == (Level.OK, "run.json")
    share = "of the network's 400.0 GB/s."
    assert found.sentence == f"all_reduce of 8.590 GB at {rate / 1e9:.1f} GB/s is {word} {share}"


def test_a_poor_result_names_what_topology_and_rates_show() -> None:
    odd = replace(RAILS[1], identity=replace(RAILS[1].identity, gpu_distance="SYS"))
    down = replace(RAILS[2], active=False, state="DOWN", rate_bytes_per_second=None)
    places = (DevicePlace("mlx5_3", pcie_bytes_per_second=31.5e9, pcie_max_bytes_per_second=63e9),)
    (found,) = findings((RAILS[0], odd, down, *RAILS[3:]), places, rate=250e9)
    assert found.level is Level.WARN
    assert found.meaning == (
        "Suspects, each a guess: mlx5_1:1: NUMA crossing (its nearest GPU is on another NUMA node (SYS)), "
        "mlx5_2:1: link down (the link is DOWN) and mlx5_3:1: PCIe link (it carries 31.5 GB/s, the port 50 GB/s)."
    )
    assert "--against=RECORDING" in found.advice


def test_a_result_below_the_bound_of_every_algorithm_is_poor() -> None:
    """250 of 400 GB/s for a ring; a tree could reach 450."""
    (poor,) = findings(rate=250e9, algorithm="")
    assert (poor.level, "is poor: 62.50 %" in poor.sentence) == (Level.WARN, True)
    (unknown,) = findings(rate=360e9, algorithm="")
    assert (
        unknown.level,
        unknown.sentence.endswith("is not graded: algorithm unknown; `ibpulse nccl` takes --gpu-rate."),
    ) == (
        Level.OK,
        True,
    )


@pytest.mark.usefixtures("in_this_process")
def test_the_flag_reads_files_and_shows_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    path.write_text(nccl_json())
    (tmp_path / "sys").mkdir()
    words = ["doctor", f"--path.sysfs={tmp_path / 'sys'}", "--no-look", "--check=nccl", f"--nccl={path}"]
    assert main([*words, "--format=json", f"--ring.dir={tmp_path / 'ring'}"], {}) == 0
    output, errors = capsys.readouterr()
    (found,) = json.loads(output)["findings"]
    assert (found["topic"], found["level"], found["subject"]) == ("nccl", "OK", "run.json")
    assert "hunter2" not in output + errors
    path.write_text("hunter2")
    assert main(words, {}) == 1
    assert "hunter2" not in "".join(capsys.readouterr())
