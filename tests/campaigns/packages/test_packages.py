"""The deb and the rpm of a release: what they hold and need; `on_a_clean_root` installs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import packages
from tools.packages import HOME, ROOT, SCRIPT, description, main

SCRIPTS = sorted([*(ROOT / "docker/systemd").glob("**/*.sh"), *(ROOT / "slurm").glob("*.sh")])


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package whose environment holds one file."""
    folder = tmp_path_factory.mktemp("package")
    environment = folder / "ibpulse"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/ibpulse").write_text(SCRIPT)
    config = folder / "nfpm.yaml"
    config.write_text(yaml.safe_dump(description(environment, "1.2.3", "3.12", "aarch64")))
    nfpm = [packages.program("nfpm"), "package", f"--config={config}", "--packager=deb", f"--target={folder}"]
    subprocess.run(nfpm, check=True, capture_output=True)
    return folder / "ibpulse_1.2.3-py312_arm64.deb"


def listed(deb: Path, what: str) -> str:
    return subprocess.run(["dpkg-deb", what, str(deb)], check=True, capture_output=True, text=True).stdout


@pytest.mark.needs("dpkg-deb")
def test_a_package_has_its_units_its_scripts_and_a_command(deb: Path) -> None:
    files = {line.split()[5].removeprefix("."): line for line in listed(deb, "--contents").splitlines()}
    for unit in ("ibpulse", "ibpulse-gateway"):
        assert f"/usr/lib/systemd/system/{unit}.service" in files
    assert files[f"{HOME}/prolog.sh"].startswith("-rwxr-xr-x root/root")
    assert files["/usr/bin/ibpulse"].endswith(f"-> {HOME}/bin/ibpulse")
    assert not [name for name in files if name.startswith(("/etc", "/var"))]
    assert "Depends: python3 (>= 3.12), python3 (<< 3.13)" in listed(deb, "--field")


def test_an_rpm_needs_the_same_python() -> None:
    """Its file: distributions have several, of which one may be called python3."""
    found = description(ROOT, "1.2.3", "3.12", "x86_64")
    assert found["overrides"]["rpm"]["depends"] == ["/usr/bin/python3.12"]
    assert f"{HOME}/bin/ibpulse serve" in (ROOT / "docker/systemd/ibpulse.service").read_text()
    assert SCRIPT.startswith(f"#!{HOME}/bin/python\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_shell(script: Path) -> None:
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert re.match(r"#!/bin/sh\n", script.read_text())


@pytest.mark.parametrize(("script", "call"), [("postinstall", "configure"), ("postinstall", "1"), ("preremove", "0")])
def test_a_package_installs_where_systemd_is_missing(script: str, call: str, tmp_path: Path) -> None:
    command = ["/bin/sh", str(ROOT / f"docker/systemd/package/{script}.sh"), call]
    assert subprocess.run(command, env={"PATH": str(tmp_path)}, check=False).returncode == 0


def test_another_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "other-1.0-py3-none-any.whl"), str(tmp_path)])
    assert "not a wheel of ibpulse" in capsys.readouterr().err


def test_what_the_locks_install_without_dependencies_lacks_nothing() -> None:
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout
