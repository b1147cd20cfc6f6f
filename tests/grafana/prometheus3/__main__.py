"""`python -m tests.grafana.prometheus3`: parse every query of boards and rules with the parser of Prometheus 3.

Needs Go. The first run fetches and builds the parser, which takes a minute.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.grafana.documents import BOARDS, defaults, fill, targets

HERE = Path(__file__).parent
RULES = HERE.parents[2] / "dashboards" / "rules"


def main() -> int:
    """Print the refused ones and the number of all."""
    expressions = [fill(target.expr, defaults(BOARDS[target.board])) for target in targets()]
    for path in (RULES / "ibpulse-recording.yaml", RULES / "ibpulse-alerts.yaml"):
        groups = yaml.safe_load(path.read_text())["groups"]
        expressions += [rule["expr"] for group in groups for rule in group["rules"]]
    with tempfile.TemporaryDirectory() as folder:
        # go completes go.mod and writes go.sum
        for name in ("go.mod", "main.go"):
            shutil.copy(HERE / name, folder)
        done = subprocess.run(
            ["go", "run", "-mod=mod", "."], cwd=folder, input=json.dumps(expressions), text=True, check=False
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
