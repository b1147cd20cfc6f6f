"""The wheel of this checkout, built once as docker/Dockerfile builds it, and what it depends on."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        f"--wheel-dir={directory}",
        str(ROOT),
    ]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *build], check=True)
    (found,) = directory.glob("ibpulse-*.whl")
    return found


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel in a directory of its own, as the image has it."""
    directory = tmp_path_factory.mktemp("installed")
    directory.chmod(0o755)  # another user reads it
    install = ["install", "--quiet", "--no-deps", "--no-index", f"--target={directory}", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *install], check=True)
    return directory


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that the image locks, and no other, in a directory that nobody has read yet.

    The kernel charges a page of a file to whoever reads it first: with those of the tests' own packages, the libraries
    would cost a container nothing.
    """
    directory = tmp_path_factory.mktemp("dependencies")
    directory.chmod(0o755)
    names = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE))
    for distribution in map(importlib.metadata.distribution, names):
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            source = Path(str(distribution.locate_file(top)))
            if source.is_dir():
                shutil.copytree(source, directory / top, dirs_exist_ok=True)
            else:
                shutil.copy2(source, directory / top)
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            _forget(path)
    return directory


def _forget(path: Path) -> None:
    """Drop the pages of a file from memory."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
