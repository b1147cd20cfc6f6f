"""The recipe of the documentation, with the experiment trackers themselves: what was logged is read back."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import ibpulse
from tests import ROOT
from tests.api.places import in_thread
from tests.campaigns.packages.log_summary import STEPS

PACKAGES = ("wandb==0.31.0", "mlflow-skinny==3.17.2", "tensorboardX==2.6.5", "tensorboard==2.21.0")


def test_every_number_arrives_in_the_trackers(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={python}"]
    subprocess.run([*pip, "install", "--quiet", *PACKAGES], check=True)
    with in_thread(tmp_path / "node") as daemon:
        numbers = ibpulse.connect(daemon.url).summary("1s").flat("net/")
    assert len(numbers) > 20
    page = (ROOT / "docs/python.md").read_text().partition("## Experiment trackers")[2]
    (tmp_path / "numbers.json").write_text(json.dumps(numbers))
    (tmp_path / "recipe.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    script = [python, Path(__file__).with_name("log_summary.py"), "numbers.json", "recipe.py"]
    ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    stored = json.loads(ran.stdout.splitlines()[-1])
    expected = {name: [[step, number] for step in STEPS] for name, number in numbers.items()}
    assert stored["mlflow"] == expected
    assert stored["wandb"] == expected
    # it has seven digits
    assert stored["tensorboard"].keys() == numbers.keys()
    for name, found in stored["tensorboard"].items():
        assert [step for step, _ in found] == list(STEPS), name
        assert [value for _, value in found] == [pytest.approx(numbers[name], rel=1e-6)] * len(STEPS), name
