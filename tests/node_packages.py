"""Packages of npm that tests read, fetched on first use. It asserts nothing by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def fetch_package(directory: Path, package: str, version: str) -> Path:
    """`directory`, with the package in `node_modules` below it; skips, or fails in CI, if it cannot be fetched."""
    if not shutil.which("node") or not shutil.which("npm"):
        refuse("needs Node and npm")
    if not directory.joinpath("node_modules", *package.split("/")).exists():
        directory.mkdir(exist_ok=True)
        flags = ["--prefix", str(directory), "--no-package-lock", "--no-audit", "--no-fund"]
        command = ["npm", "install", *flags, f"{package}@{version}"]
        fetched = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
        if fetched.returncode:
            refuse(f"{package} cannot be fetched: {fetched.stderr[-500:]}")
    return directory


def refuse(reason: str) -> None:
    """Skip on a developer's machine; fail where everything must be installed."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
