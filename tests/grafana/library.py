"""Grafana's own library for data frames, under Node. It asserts nothing by itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MODULES = HERE / "node"
PACKAGE = "@grafana/data@13.2.3"


def find_library() -> Path:
    """The folder that holds the library, which is fetched on first use."""
    if not shutil.which("node") or not shutil.which("npm"):
        _refuse("needs Node and npm")
    if not (MODULES / "node_modules" / "@grafana" / "data").exists():
        MODULES.mkdir(exist_ok=True)
        command = ["npm", "install", "--prefix", str(MODULES), "--no-package-lock", "--no-audit", "--no-fund", PACKAGE]
        fetched = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
        if fetched.returncode:
            _refuse(f"{PACKAGE} cannot be fetched: {fetched.stderr[-500:]}")
    return MODULES


def run_grafana(library: Path, **job: Any) -> dict[str, Any]:
    """The library's results for `frames`, `transformations`, `units`, `colors` and `shown`."""
    command = ["node", str(HERE / "frames.cjs"), str(library)]
    done = subprocess.run(command, input=json.dumps(job).encode(), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _refuse(reason: str) -> None:
    # skipped on a developer's machine, a failure where everything must be installed
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
