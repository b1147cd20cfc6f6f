"""`python -m tests.campaigns.cluster`: the chart on a real node, and a table of the checks; `-k WORD`: only some."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.campaigns.cluster import image
from tests.campaigns.cluster.checks import CHECKS
from tests.campaigns.cluster.cluster import Cluster
from tests.campaigns.cluster.installation import prepare
from tests.campaigns.cluster.programs import build_all


def main() -> int:
    """Build what is missing, start, check and print; returns 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", metavar="WORD", help="only checks with this word in their title")
    wanted = [each for each in CHECKS if parser.parse_args().k in each[0]]
    rows = []

    def timed(title: str, function: Callable[[], str | None]) -> None:
        begin = time.monotonic()
        figure, good = "", True
        try:
            figure = function() or ""
        except (AssertionError, RuntimeError, OSError, ValueError, KeyError) as error:
            figure, good = f"{type(error).__name__}: {error}", False
        rows.append((good, title, figure, time.monotonic() - begin))
        print(f"{'passed' if good else 'FAILED'} {title}: {figure} ({time.monotonic() - begin:.0f} s)", flush=True)

    timed("programs", build_all)
    timed("image", image.build)
    with tempfile.TemporaryDirectory(prefix="ibpulse-node-") as name:
        cluster = Cluster(Path(name))
        try:
            timed("node ready", lambda: f"{cluster.start():.0f} s, load {os.getloadavg()[0]:.0f}")
            timed("images loaded", cluster.load_images)
            timed("prepared", lambda: prepare(cluster))
            for title, function in wanted:
                timed(title, partial(function, cluster))
        finally:
            cluster.stop()
    print("\n| check | result | seconds |\n|---|---|---|")
    for good, title, figure, seconds in rows:
        print(f"| {title} | {'' if good else '**failed** '}{figure[:300]} | {seconds:.0f} |")
    failed = sum(not good for good, *_ in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
