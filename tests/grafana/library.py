"""Grafana's own library for data frames, under Node. It asserts nothing by itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.node_packages import fetch_package

HERE = Path(__file__).parent
MODULES = HERE / "node"
PACKAGE, VERSION = "@grafana/data", "13.2.3"


def find_library() -> Path:
    """The folder that holds the library, which is fetched on first use."""
    return fetch_package(MODULES, PACKAGE, VERSION)


def run_grafana(library: Path, **job: Any) -> dict[str, Any]:
    """The library's results for `frames`, `transformations`, `units`, `colors` and `shown`."""
    command = ["node", str(HERE / "frames.cjs"), str(library)]
    done = subprocess.run(command, input=json.dumps(job).encode(), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found
