"""The systemd units, read by systemd's own programs. Nothing here starts them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ibpulse.agent.config.settings import describe
from ibpulse.commands import VERBS
from ibpulse.commands.parser import setting_rows
from tests import ROOT

DAEMON, GATEWAY = (ROOT / f"docker/systemd/{name}.service" for name in ("ibpulse", "ibpulse-gateway"))
UNITS = (DAEMON, GATEWAY)
NEEDS_SYSTEMD = pytest.mark.needs("systemd-analyze")
PAGE = (ROOT / "docs/systemd.md").read_text()
PARTS = dict(zip(UNITS, PAGE.split("\n## Gateway\n"), strict=True))
each_unit = pytest.mark.parametrize("source", UNITS, ids=lambda source: source.stem)


def _runnable(source: Path, directory: Path) -> Path:
    """The unit with a program that is there: systemd looks whether it is."""
    path = directory / source.name
    path.write_text(source.read_text().replace("/opt/ibpulse/bin/ibpulse", "/bin/true"))
    return path


def _drop_ins() -> list[tuple[Path, str]]:
    """Each unit alone, and with each drop-in of its part of the page."""
    return [(unit, text) for unit in UNITS for text in ("", *re.findall(r"```ini\n(.*?)```", PARTS[unit], re.DOTALL))]


@NEEDS_SYSTEMD
@pytest.mark.parametrize(
    ("source", "drop_in"), _drop_ins(), ids=lambda value: getattr(value, "stem", None) or str(len(value))
)
def test_systemd_finds_nothing_wrong(source: Path, drop_in: str, tmp_path: Path) -> None:
    unit = _runnable(source, tmp_path)
    folder = unit.with_name(unit.name + ".d")
    folder.mkdir()
    (folder / "local.conf").write_text(drop_in)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr


@NEEDS_SYSTEMD
@each_unit
def test_its_exposure_is_what_the_page_says(source: Path, tmp_path: Path) -> None:
    unit = _runnable(source, tmp_path)
    analyse = ["systemd-analyze", "security", "--offline=true", "--no-pager", unit]
    done = subprocess.run(analyse, capture_output=True, text=True, check=True)
    (exposure,) = re.findall(rf"Overall exposure level for {unit.name}: ([\d.]+) OK", done.stdout)
    assert f"exposure level {exposure} " in PARTS[source]
    assert float(exposure) < 2


@each_unit
def test_it_has_no_cpu_quota_and_never_gives_up(source: Path) -> None:
    unit, _, service = source.read_text().partition("[Service]")
    assert "\nCPUQuota" not in service
    assert "\nStartLimitIntervalSec=0\n" in unit
    assert "\nRestart=on-failure\n" in service


def test_the_flags_of_the_daemon_are_settings_and_its_directories_are_its_own() -> None:
    service = dict(re.findall(r"^(\w+)=(.*)$", DAEMON.read_text(), re.MULTILINE))
    flags = re.findall(r"--([\w.-]+)=(\S+)", service["ExecStart"])
    assert {name for name, _ in flags} <= {row.name for row in describe()}
    assert dict(flags)["ring.dir"] == f"/run/{service['RuntimeDirectory']}"
    assert service["DynamicUser"] == "yes"


def test_the_gateway_is_hardened_like_the_daemon_and_has_no_directory() -> None:
    def hardening(source: Path) -> set[str]:
        return set(source.read_text().partition("\nDynamicUser=yes\n")[2].partition("\n[Install]\n")[0].splitlines())

    assert len(hardening(GATEWAY)) > 25
    only_of_the_daemon = {line for line in hardening(DAEMON) - hardening(GATEWAY) if not line.startswith("#")}
    assert only_of_the_daemon == {
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX",
        "SystemCallFilter=sched_setaffinity sched_setscheduler",
    }
    assert "Directory=" not in GATEWAY.read_text()


def test_variables_of_the_page_are_settings_of_the_gateway() -> None:
    verb = VERBS["gateway"]
    assert f"/bin/ibpulse {verb.name}\n" in GATEWAY.read_text()
    named = set(re.findall(r"IBPULSE_\w+", PARTS[GATEWAY] + GATEWAY.read_text()))
    assert len(named) == 3
    assert named <= {row.variable for row in setting_rows(verb)}
