"""The PromQL recipes in the docs: Prometheus parses them, and every metric in them exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from ibpulse.agent.metrics.page import TABLE
from tests.tables import for_each

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [(DOCS / name).read_text() for name in ("traffic.md", "promql.md", "counters.md")]
BLOCKS = re.findall(r"```promql\n(.*?)```", "\n".join(PAGES), re.DOTALL)
TRAFFIC = re.compile(
    r"ibpulse_(port_(rail|burst|(transmit|receive)_saturated)|node_(burst|gap|rail|step|workload|moe|\w+_saturated))"
)
RECIPES = [recipe.strip() for block in BLOCKS for recipe in block.split("\n\n")]


def sample_names() -> set[str]:
    """Every possible sample name."""
    names = {metric.name for metric in TABLE}
    stems = [metric.name for metric in TABLE if metric.type == "histogram"]
    return names | {f"{stem}_{part}" for stem in stems for part in ("bucket", "sum", "count")}


def test_there_are_recipes() -> None:
    assert len(RECIPES) > 25


@for_each(RECIPES)
def test_every_metric_of_a_recipe_is_in_the_table(recipe: str) -> None:
    used = set(re.findall(r"ibpulse_\w+", recipe))
    assert used or "rail:bandwidth:rate5m" in recipe
    assert used <= sample_names()


@for_each([metric.name for metric in TABLE if TRAFFIC.match(metric.name)])
def test_every_metric_of_the_traffic_has_a_recipe(name: str) -> None:
    assert any(name in recipe for recipe in RECIPES)


@pytest.mark.real("process")
@pytest.mark.needs("promtool")
def test_prometheus_parses_every_recipe(tmp_path: Path) -> None:
    rules = [{"record": f"recipe:number{number}", "expr": recipe} for number, recipe in enumerate(RECIPES)]
    path = tmp_path / "recipes.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "recipes", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(RECIPES)} rules found" in checked.stdout
