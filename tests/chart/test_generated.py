"""What the programs write into the chart, and that its version is the program's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ibpulse import __version__
from ibpulse.base.errors import ConfigError
from tests.campaigns.chart.rendering import CHART, ROOT
from tools.chart import __main__
from tools.chart.chart_values import read_values

NAME, DIGEST = "registry.example.com/team/ibpulse", f"sha256:{'0a' * 32}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the program reads of a checkout, to be changed."""
    shutil.copytree(CHART, tmp_path / "helm" / "ibpulse")
    shutil.copytree(ROOT / "dashboards", tmp_path / "dashboards")
    shutil.copy(ROOT / "LICENSE", tmp_path)
    return tmp_path


def test_the_chart_installs_the_version_of_the_program() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == __version__
    assert (about["name"], about["apiVersion"], about["type"]) == (CHART.name, "v2", "application")
    assert about["kubeVersion"] == ">=1.25.0-0"
    assert about["annotations"]["artifacthub.io/license"] == "Apache-2.0"


def test_writing_brings_everything_up_to_date_and_takes_old_boards_away(checkout: Path) -> None:
    (checkout / "dashboards" / "new.json").write_text("{}\n")
    for name in ("helm/ibpulse/LICENSE", "helm/ibpulse/templates/_rules.tpl"):
        (checkout / name).unlink()
    about = checkout / "helm/ibpulse/Chart.yaml"
    about.write_text(re.sub("ersion: .*", "ersion: 0", about.read_text()))
    old = checkout / "helm/ibpulse/files/dashboards/old.json"
    old.parent.mkdir(exist_ok=True)
    old.write_text("{}")
    assert __main__.main([str(checkout)]) == 0
    assert not old.exists()
    assert (old.parent / "new.json").read_text() == "{}\n"
    assert f'\nversion: {__version__}\nappVersion: "{__version__}"\n' in about.read_text()
    assert all((checkout / path).read_text() == text for path, text in __main__.chart_files(checkout).items())


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("values.yaml", ("# -- Affinity, in", "# Affinity, in"), "affinity has no comment"),
        ("values.yaml", ("  # Up to here.\n", ""), "the chart has no part between"),
        ("values.schema.json", ('"priorityClassName"', '"priorityClas"'), "priorityClassName is missing; add it"),
    ],
)
def test_what_cannot_be_written_is_said(
    checkout: Path, capsys: pytest.CaptureFixture[str], file: str, change: tuple[str, str], said: str
) -> None:
    path = checkout / "helm" / "ibpulse" / file
    path.write_text(path.read_text().replace(*change))
    assert __main__.main([str(checkout)]) == 1
    assert said in capsys.readouterr().err


def test_a_release_only_sets_the_image_digest(checkout: Path) -> None:
    path = checkout / "helm" / "ibpulse" / "values.yaml"
    before = path.read_text().splitlines()
    assert __main__.main([str(checkout), f"{NAME}@{DIGEST}"]) == 0
    changed = [after for was, after in zip(before, path.read_text().splitlines(), strict=True) if was != after]
    assert changed == ["  registry: registry.example.com", "  repository: team/ibpulse", f"  digest: {DIGEST}"]


@pytest.mark.needs("helm")
@pytest.mark.real("process")
def test_the_packaged_chart_of_a_release_installs_that_image(checkout: Path) -> None:
    assert __main__.main([str(checkout), f"{NAME}@{DIGEST}"]) == 0
    _helm("package", "helm/ibpulse", "--destination", "dist", checkout=checkout)
    package = f"dist/ibpulse-{__version__}.tgz"
    _helm("lint", "--strict", package, checkout=checkout)
    documents = [entry for entry in yaml.safe_load_all(_helm("template", package, checkout=checkout)) if entry]
    pods = [
        entry["spec"].get("template", entry)["spec"] for entry in documents if entry["kind"] in ("DaemonSet", "Pod")
    ]
    assert [container["image"] for pod in pods for container in pod["containers"]] == [f"{NAME}@{DIGEST}"] * 2
    assert "image.registry is empty" not in _helm("install", "--dry-run=client", "r", package, checkout=checkout)


@pytest.mark.needs("helm")
@pytest.mark.real("process")
def test_a_released_chart_names_home_and_runbooks(checkout: Path) -> None:
    repository = "https://host.example/team/ibpulse"
    assert __main__.main([str(checkout), f"{NAME}@{DIGEST}", repository, "v1.2.3"]) == 0
    chart = yaml.safe_load((checkout / "helm/ibpulse/Chart.yaml").read_text())
    assert chart["home"] == repository == chart["maintainers"][0]["url"]
    assert chart["sources"] == [repository]
    path = chart["icon"].removeprefix(f"{repository}/raw/v1.2.3/")
    assert (ROOT / path).read_text().startswith("<svg")
    # without an icon, Helm recommends one
    assert "[INFO]" not in _helm("lint", "--strict", "helm/ibpulse", checkout=checkout)
    rules = _helm("template", "helm/ibpulse", "--set=prometheusRule.enabled=true", checkout=checkout)
    assert f"{repository}/blob/v1.2.3/docs/runbooks/IBPulseRailMissing.md\n" in rules


def test_an_address_that_is_not_absolute_is_refused(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([str(checkout), f"{NAME}@{DIGEST}", "team/ibpulse", "v1"]) == 1
    assert "is not an absolute address" in capsys.readouterr().err


def _helm(*words: str, checkout: Path) -> str:
    done = subprocess.run(["helm", *words], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("image", ["ibpulse", f"{NAME}:1.0", f"ibpulse@{DIGEST}", f"{NAME}@sha256:0a", ""])
def test_an_image_without_registry_or_with_a_tag_is_refused(
    checkout: Path, capsys: pytest.CaptureFixture[str], image: str
) -> None:
    before = (checkout / "helm/ibpulse/values.yaml").read_text()
    assert __main__.main([str(checkout), image]) == 1
    said = f'"{image}" is not an image; write REGISTRY/REPOSITORY, or REGISTRY/REPOSITORY@sha256:DIGEST\n'
    assert capsys.readouterr().err == said
    assert (checkout / "helm/ibpulse/values.yaml").read_text() == before


def test_an_ambiguous_digest_is_not_written(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkout / "helm/ibpulse/values.yaml"
    path.write_text(path.read_text() + "other:\n  digest: 1\n")
    assert __main__.main([str(checkout), f"{NAME}@{DIGEST}"]) == 1
    assert "image.digest: must appear exactly once, found 2" in capsys.readouterr().err


def test_comments_become_rows_of_the_table() -> None:
    text = """\
# No value's comment.
plain:
  # -- First words,
  # and more | of them.
  one: {a: 1}
  # -- Another.
  two: ""
# -- A map as a whole.
whole:
  three: 3
"""
    assert read_values(text) == {
        ("plain", "one"): "First words, and more | of them.",
        ("plain", "two"): "Another.",
        ("whole",): "A map as a whole.",
    }
    with pytest.raises(ConfigError, match=r"values.yaml:2: a.b has no comment"):
        read_values("a:\n  b: 1\n")


@pytest.mark.real("process")
def test_the_chart_needs_no_developer_tools() -> None:
    """A release writes it where the tools of developers are not installed."""
    blocked = "import sys; sys.modules['grafana_foundation_sdk'] = None; import tools.chart.__main__"
    subprocess.run([sys.executable, "-c", blocked], cwd=ROOT, check=True)
