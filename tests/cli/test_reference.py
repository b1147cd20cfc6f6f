"""The committed reference pages are what the tables say."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ibpulse.config.loading import load
from ibpulse.config.setting_table import describe
from tools.reference import __main__

DOCS = Path(__file__).parents[2] / "docs"
REGENERATE = "run `python -m tools.reference docs` and commit the result"


@pytest.mark.parametrize("name", __main__.PAGES)
def test_a_committed_page_is_what_the_program_writes(name: str) -> None:
    page = DOCS / name
    assert page.is_file(), f"docs/{name} is missing: {REGENERATE}"
    assert page.read_text(encoding="utf-8") == __main__.PAGES[name](), f"docs/{name} differs: {REGENERATE}"


def test_the_program_writes_every_page_into_the_directory(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tools.reference", str(tmp_path)], check=True)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == set(__main__.PAGES)


def test_every_setting_is_documented() -> None:
    page = __main__.configuration_markdown()
    for row in describe():
        assert f"| `{row.name}` |" in page
        assert f"| `{row.variable}` |" in page


def test_the_example_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    example = __main__.configuration_markdown().split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "example.yaml"
    path.write_text(example, encoding="utf-8")
    assert yaml.safe_load(example)
    assert load({"config.file": [str(path)]}, {}).ports.exclude == ("mlx5_bond_0", "mlx5_4:1")
