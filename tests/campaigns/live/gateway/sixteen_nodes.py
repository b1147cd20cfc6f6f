"""`python -m tests.campaigns.live.gateway.sixteen_nodes`: sixteen daemons, of which four fail, and their gateway."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.campaigns.live.gateway import test_hostile_nodes as checks
from tests.campaigns.live.gateway.hostile_fleet import HostileFleet


def main() -> None:
    """Run the fleet, check it like the test, and print numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--interval", default="10ms")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ibpulse-fleet-", dir="/dev/shm") as directory:
        fleet = HostileFleet(Path(directory), arguments.nodes, arguments.interval)
        with fleet.running() as gateway, ExitStack() as stack:
            start, begin = gateway.usage(), time.monotonic()
            seen = checks.see(fleet, gateway, stack, arguments.rounds)
            seconds = time.monotonic() - begin
            for name, check in vars(checks).items():
                if name.startswith("test_"):
                    check(seen)
                    say(f"passed: {name.removeprefix('test_').replace('_', ' ')}")
            assert seen.before is not None
            assert seen.after is not None
            for words, usage in (("start", start), ("after two rounds", seen.before), ("end", seen.after)):
                say(f"{words}: {usage.memory_bytes / 1e6:.1f} MB, {usage.descriptors} descriptors")
            say(f"{len(gateway.answers)} answers and events in {seconds:.0f} s, {arguments.rounds} rounds")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
