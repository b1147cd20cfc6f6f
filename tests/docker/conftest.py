"""The wheel, built once as docker/Dockerfile builds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
