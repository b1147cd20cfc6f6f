"""Injects faults into a running daemon and checks invariants: `make faults ARGS="--seed=1 --minutes=60"`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.faults.campaign import Campaign
from bench.faults.fault_table import FAULTS, choose, split_possible
from bench.faults.load import Load
from bench.faults.outcome import Outcome
from bench.faults.plan import Fault, plan_episodes
from bench.faults.testbed import prepared
from ibpulse import __version__
from tests.fusefabric.client import why_not

MAX_SECONDS = 10.0
# the ring must still hold a whole episode when it is judged
MAX_LONGEST_SECONDS = 30.0


def run_campaign(
    place: Path,
    faults: tuple[Fault, ...],
    *,
    seed: int = 0,
    minutes: float,
    longest_seconds: float = MAX_SECONDS,
    say: Callable[[str], object] = print,
) -> Outcome:
    """A whole campaign in a directory, which should be in memory; without faults, a calm one."""
    with prepared(place) as testbed:
        possible, impossible = split_possible(faults, testbed)
        plan = plan_episodes(possible, testbed.devices, seed, longest_seconds) if possible else tuple
        with Load(testbed) as load:
            campaign = Campaign(testbed, load, plan, seed, say)
            campaign.outcome.impossible = impossible
            campaign.run(60 * minutes)
        campaign.stop()
        return campaign.outcome


def main() -> int:
    """Parse the flags and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed of the faults, their devices, times and lengths (default: 0)"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="Length of the campaign (default: 10)")
    parser.add_argument(
        "--longest", type=float, default=MAX_SECONDS, help="Longest fault in seconds, at most 30 (default: 10)"
    )
    parser.add_argument("--calm", action="store_true", help="The same load without faults")
    parser.add_argument("--only", action="append", default=[], metavar="FAULT", help="Only this fault; repeatable")
    parser.add_argument("--log", type=Path, metavar="FILE", help="Keep the log of the daemon")
    parser.add_argument("--record", type=Path, metavar="FILE", help="Append violations to this track record")
    parser.add_argument("--list", action="store_true", help="List the faults")
    given = parser.parse_args()
    if given.list:
        print(*(fault.name for fault in FAULTS), sep="\n")
        return 0
    if reason := why_not():
        parser.error(f"the exact fabric cannot be mounted: {reason}")
    if not 0 < given.longest <= MAX_LONGEST_SECONDS:
        parser.error(f"--longest: {given.longest:g} is not between 0 and {MAX_LONGEST_SECONDS:g}")
    try:
        faults = () if given.calm else choose(given.only)
    except ValueError as error:
        parser.error(str(error))
    # so that the mounts and the daemon go away
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="ibpulse-faults-", dir="/dev/shm") as scratch:
        place = Path(scratch)
        try:
            outcome = run_campaign(place, faults, seed=given.seed, minutes=given.minutes, longest_seconds=given.longest)
        finally:
            if given.log and (place / "log").exists():
                shutil.copy(place / "log", given.log)
    print(*outcome.table(), sep="\n")
    if given.record:
        with given.record.open("a") as record:
            record.writelines(f"{row}\n" for row in outcome.records(__version__))
    print(outcome.line())
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
