"""The deb and the rpm of a release: what they hold, what they need, what they refuse."""

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


@pytest.mark.parametrize(("call", "refused"), [("upgrade 0.2.0", False), ("2", False), ("install", True), ("1", True)])
def test_a_package_does_not_install_over_another_installation(call: str, refused: bool, tmp_path: Path) -> None:
    """A unit of the administrator in /etc is no reason to refuse an upgrade."""
    unit = tmp_path / "ibpulse.service"
    unit.touch()
    text = (ROOT / "docker/systemd/package/preinstall.sh").read_text()
    script = text.replace("/etc/systemd/system/ibpulse.service", str(unit)).replace(
        "/opt/ibpulse", str(tmp_path / "no")
    )
    done = subprocess.run(["sh", "-c", script, "sh", *call.split()], capture_output=True, text=True, check=False)
    assert (done.returncode, "without a package" in done.stderr) == (int(refused), refused)


@pytest.mark.parametrize(("script", "call"), [("postinstall", "configure"), ("postinstall", "1"), ("preremove", "0")])
def test_a_package_installs_where_systemd_is_missing(script: str, call: str, tmp_path: Path) -> None:
    command = ["/bin/sh", str(ROOT / f"docker/systemd/package/{script}.sh"), call]
    assert subprocess.run(command, env={"PATH": str(tmp_path)}, check=False).returncode == 0


@pytest.mark.parametrize("call", ["ibpulse-1.0-py3-none-any.whl requirements.txt", "--rollback", "--uninstall"])
def test_the_script_does_not_touch_what_a_package_installed(call: str, tmp_path: Path) -> None:
    unit, program = tmp_path / "ibpulse.service", tmp_path / "opt" / "bin" / "ibpulse"
    program.parent.mkdir(parents=True)
    for path in (unit, program):
        path.touch()
    text = (ROOT / "docker/systemd/install.sh").read_text()
    for place, other in (
        ("/usr/lib/systemd/system/ibpulse.service", unit),
        ("/opt/ibpulse", tmp_path / "opt"),
        ("units=/etc/systemd/system", f"units={tmp_path}"),
        ("/run/", f"{tmp_path}/run/"),
        ("systemctl", "true"),
    ):
        text = text.replace(place, str(other))
    done = subprocess.run(["sh", "-c", text, "sh", *call.split()], capture_output=True, text=True, check=False)
    assert (done.returncode, "a package has installed ibpulse" in done.stderr) == (1, True)
    assert unit.exists()
    assert program.exists()


def test_another_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "other-1.0-py3-none-any.whl"), str(tmp_path)])
    assert "not a wheel of ibpulse" in capsys.readouterr().err


def test_what_the_locks_install_without_dependencies_lacks_nothing() -> None:
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout
