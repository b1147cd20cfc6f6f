"""The systemd unit, read by systemd's own programs. Nothing here starts it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ibpulse.config.setting_table import describe

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "docker/systemd/ibpulse.service"
NEEDS_SYSTEMD = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
PAGE = (ROOT / "docs/systemd.md").read_text()


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there: systemd looks whether it is."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/ibpulse/bin/ibpulse", "/bin/true"))
    return path


def _drop_ins() -> list[str]:
    return re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.outside
@NEEDS_SYSTEMD
@pytest.mark.parametrize("drop_in", ["", *_drop_ins()], ids=lambda text: text.partition("=")[0].split()[-1:] or "alone")
def test_systemd_finds_nothing_wrong(unit: Path, drop_in: str) -> None:
    folder = unit.with_name(unit.name + ".d")
    folder.mkdir()
    (folder / "local.conf").write_text(drop_in)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr


@pytest.mark.outside
@NEEDS_SYSTEMD
def test_its_exposure_is_what_the_page_says(unit: Path) -> None:
    analyse = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    done = subprocess.run(analyse, capture_output=True, text=True, check=True)
    (exposure,) = re.findall(r"Overall exposure level for ibpulse.service: ([\d.]+) OK", done.stdout)
    assert f"exposure level {exposure} " in PAGE
    assert float(exposure) < 2


def test_there_is_no_cpu_quota() -> None:
    assert not re.search(r"^(CPUQuota|CPUQuotaPeriodSec)", UNIT.read_text(), re.MULTILINE)


def test_it_never_gives_up() -> None:
    unit, _, service = UNIT.read_text().partition("[Service]")
    assert "\nStartLimitIntervalSec=0\n" in unit
    assert "\nRestart=on-failure\n" in service


def test_its_flags_are_settings_and_its_directories_are_its_own() -> None:
    service = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    flags = re.findall(r"--([\w.-]+)=(\S+)", service["ExecStart"])
    assert {name for name, _ in flags} <= {row.name for row in describe()}
    assert dict(flags)["ring.dir"] == f"/run/{service['RuntimeDirectory']}"
    assert service["DynamicUser"] == "yes"
