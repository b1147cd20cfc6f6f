"""The Dockerfile as text, and the wheel that it installs; `tests.campaigns.cluster.image` builds and runs it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from tests import ROOT

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
BIN = Path(sys.executable).parent


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    done = subprocess.run([BIN / "hadolint", ROOT / "docker/Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_bases_and_packages_are_pinned_and_both_bases_are_the_same_python() -> None:
    bases = re.findall(r"^ARG \w+_BASE=(\S+)@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BUILD_BASE}", "${RUN_BASE}"]
    # Debian 13 has Python 3.13
    assert bases[0].endswith("python:3.13-slim-trixie")
    assert "python3-debian13" in bases[1]
    installs = re.findall(r"pip install (.*)", DOCKERFILE)
    assert installs
    assert all("--require-hashes" in install or "--no-index" in install for install in installs)


def test_every_file_that_is_copied_exists_and_is_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = " ".join(re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)).split()
    assert copied
    for path in copied:
        assert (ROOT / path).exists()
        assert any(path.rstrip("/") == name or path.startswith(name) for name in kept), path


def test_the_wheel_holds_all_that_the_program_reads(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("ibpulse/")}
    package = ROOT / "exporter"
    files = (path for path in (package / "ibpulse").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {str(path.relative_to(package)) for path in files}
