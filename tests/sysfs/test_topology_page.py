"""docs/topology.md says what the tables of the code say, and its examples work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ibpulse.agent.metrics.metric_table import TABLE
from ibpulse.agent.sysfs.gpus import WORDS
from ibpulse.agent.sysfs.kinds import KINDS
from ibpulse.agent.sysfs.overrides import KINDS as KEYS
from ibpulse.agent.sysfs.overrides import Override, read_overrides
from ibpulse.agent.sysfs.pcie import LINK_FAULTS, count_bytes
from ibpulse.agent.sysfs.pcie import WORDS as VERDICTS

PAGE = (Path(__file__).parents[2] / "docs" / "topology.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_on_the_page(kind: str) -> None:
    assert PAGE.count(f"| `{kind}` | {KINDS[kind]} |") == 1


@pytest.mark.parametrize("word", VERDICTS)
def test_every_verdict_is_on_the_page(word: str) -> None:
    told = "yes" if word in LINK_FAULTS else "no"
    assert PAGE.count(f"| `{word}` | {VERDICTS[word]} | {told} |") == 1


def test_every_distance_is_on_the_page() -> None:
    assert [word for word in re.findall(r"^\| `([A-Z]+)` \|", PAGE, re.MULTILINE) if word in WORDS] == list(WORDS)


@pytest.mark.parametrize(
    ("speed", "sixteen", "eight"), re.findall(r"^\| (\d+) \(Gen\d\) \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
)
def test_the_bytes_of_a_generation_are_those_of_the_code(speed: str, sixteen: str, eight: str) -> None:
    for lanes, written in ((16, sixteen), (8, eight)):
        carried = count_bytes(float(speed), lanes)
        assert carried is not None
        assert f"{carried / 1e9:.1f}" == written


def test_the_example_of_the_file_can_be_used(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "topology.yaml").write_text(example)
    overrides = read_overrides(tmp_path / "topology.yaml")
    assert overrides["mlx5_ib1"] == Override(gpus=("0002:00:00.0",), distance="PIX")
    assert all(f"  {key}:" in example for key in KEYS)


def test_the_recipes_name_metrics_of_the_table() -> None:
    (recipes,) = re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)
    assert set(re.findall(r"ibpulse_\w+", recipes)) <= {metric.name for metric in TABLE}
