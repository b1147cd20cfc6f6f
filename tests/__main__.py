"""`make test`: runs every tier although one fails, then prints one table and what was not tested.

Needs the standard library only, because it runs before anything is installed. `ARGS="tests/ring -k overwrite"` runs
some tests instead; `REQUIRE="chromium root"` makes it an error that tests were skipped for lack of these.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [".venv/bin/python", "-m", "pytest", "--quiet", "--no-header"]
WORKERS = min(os.cpu_count() or 1, 8)
CHECKS = ("format", "lint", "types", "imports", "sizes", "generated")
PARALLEL = f"--numprocesses={WORKERS}"
UNIT = ["tests", "--ignore=tests/smoke", "--ignore=tests/campaigns", PARALLEL, "--dist=loadfile"]
SMOKE = ["tests/smoke", PARALLEL]


@dataclass
class Tier:
    """A row of the table; `skipped` counts tests by reason."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def main() -> int:
    """Returns 1 if anything failed, or was skipped although it is required."""
    os.chdir(ROOT)
    if given := shlex.split(os.environ.get("ARGS", "")):
        return make("setup") or subprocess.run([*PYTEST, *given], check=False).returncode
    tiers = [run_targets("downloads", "setup")]
    if not tiers[0].failed:
        tiers += [run_targets("check", *(f"check-{name}" for name in CHECKS)), run_tests("unit", UNIT)]
        tiers += [run_tests("smoke", SMOKE)]
    print("\n".join(["", *table(tiers), "", not_tested(tiers)]))
    skipped = {reason.removeprefix("no ") for tier in tiers for reason in tier.skipped}
    if lacking := skipped & {*os.environ.get("REQUIRE", "").split()}:
        print(f"required, but missing: {', '.join(sorted(lacking))}")
    return int(bool(lacking) or any(tier.failed for tier in tiers))


def make(target: str) -> int:
    """The exit status of one target of the Makefile."""
    return subprocess.run(["make", "--no-print-directory", target], check=False).returncode


def run_targets(name: str, *targets: str) -> Tier:
    """Make each target, although others fail."""
    began = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        failed = sum(status != 0 for status in pool.map(make, targets))
    return Tier(name, len(targets) - failed, failed, seconds=time.monotonic() - began)


def run_tests(name: str, arguments: list[str]) -> Tier:
    """Run pytest, and count what it reports; a run that ends without a report is one failure."""
    tier, report, began = Tier(name), ROOT / f"build/test/{name}.xml", time.monotonic()
    report.unlink(missing_ok=True)
    status = subprocess.run([*PYTEST, *arguments, f"--junitxml={report}"], check=False).returncode
    tier.seconds = time.monotonic() - began
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    for case in cases:
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            tier.failed += 1
        elif skip is not None:
            tier.skipped[skip.get("message", "")] += 1
        else:
            tier.passed += 1
    tier.failed = tier.failed or int(status != 0)
    return tier


def table(tiers: list[Tier]) -> list[str]:
    """One row per tier, and their sums."""
    rows = [(tier.name, tier.passed, tier.failed, tier.skipped.total(), tier.seconds) for tier in tiers]
    rows.append(("all", *(sum(row[column] for row in rows) for column in range(1, 5))))
    lines = [
        f"{name:<9} {passed:>7} {failed:>7} {skipped:>8} {seconds:>8.0f}"
        for name, passed, failed, skipped, seconds in rows
    ]
    return [f"{'tier':<9} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}", *lines]


def not_tested(tiers: list[Tier]) -> str:
    """One line: why tests were skipped, and how many."""
    reasons = sum((tier.skipped for tier in tiers), Counter[str]())
    counts = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
    return f"not tested: {counts}" if counts else "nothing was skipped"


if __name__ == "__main__":
    sys.exit(main())
