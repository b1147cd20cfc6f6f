"""Screenshots of the boards in a running Grafana, as in docker/compose.yaml: `python -m tools.previews.grafana`."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.previews.shots import SECONDS, browser

BOARDS = Path(__file__).resolve().parents[2] / "dashboards"
THEMES, WIDTH, HEIGHT = ("dark", "light"), 1440, 2400
# panels below draw when their answers are there
DRAWING_MS = 10_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a picture of each board in each theme; a board that Grafana does not have ends the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.previews.grafana", description=__doc__)
    parser.add_argument("--grafana", default="http://localhost:3000", help="address (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("screenshots"), help="folder (default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=15, help="time range up to now (default: %(default)s)")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    with browser() as running:
        for path, theme in itertools.product(sorted(BOARDS.glob("*.json")), THEMES):
            uid = json.loads(path.read_text())["uid"]
            page = running.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            span = f"from=now-{given.minutes}m&to=now"
            answer = page.goto(f"{given.grafana}/d/{uid}?kiosk&theme={theme}&{span}", timeout=SECONDS * 1000)
            if answer is None or not answer.ok:
                sys.stderr.write(f"{given.grafana}: no board {uid}\n")
                return 1
            page.wait_for_load_state("networkidle", timeout=SECONDS * 1000)
            page.wait_for_timeout(DRAWING_MS)
            page.screenshot(path=given.out / f"{path.stem}-{theme}.png")
            page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
