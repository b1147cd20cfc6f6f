"""The reference pages say what the tables say."""

from pathlib import Path

import yaml

from ibpulse.agent.config.loading import load
from ibpulse.agent.config.settings import describe
from tools.reference import __main__


def test_the_program_writes_every_page_into_the_directory(tmp_path: Path) -> None:
    assert __main__.main([str(tmp_path)]) == 0
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
