"""`make campaign-NAME`: one of the long checks, at most 20 minutes, with a figure at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_SECONDS = 20 * 60
PYTHON = [sys.executable, "-m"]
FUZZED = (
    "tests/campaigns/fuzz",
    "tests/recordings/test_damaged_files.py",
    "tests/jobs/test_hostile_jobs.py",
    "tests/overlap/test_damaged_traces.py",
)


def pytest(*paths: str) -> list[str]:
    """Run tests one after another."""
    return [*PYTHON, "pytest", "--quiet", "--no-header", *paths]


def bench(module: str, *arguments: str) -> list[str]:
    """Run a measurement, which writes its page under `build/` instead of `docs/`."""
    page = ROOT / "build/campaigns" / f"{module.rpartition('.')[2]}.md"
    return [*PYTHON, module, *arguments, f"--output={page}"]


SEED = os.environ.get("SEED") or str(int(time.time()))
CAMPAIGNS: dict[str, list[list[str]]] = {
    "live": [pytest("tests/campaigns/live")],
    "faults": [
        pytest("tests/campaigns/faults"),
        [*PYTHON, "bench.faults", "--minutes=10", f"--seed={SEED}", "--record=docs/track-record.md"],
    ],
    "vm": [[*PYTHON, "tests.campaigns.vm.build"], pytest("tests/campaigns/vm")],
    "pages": [pytest("tests/campaigns/pages")],
    "prometheus": [pytest("tests/campaigns/prometheus")],
    "chart": [pytest("tests/campaigns/chart")],
    "cluster": [[*PYTHON, "tests.campaigns.cluster"]],
    "image": [[*PYTHON, "tests.campaigns.cluster.image"]],
    "packages": [pytest("tests/campaigns/packages"), [*PYTHON, "tests.campaigns.packages.on_a_clean_root"]],
    "fuzz": [pytest("-s", *FUZZED)],
    "accuracy": [bench("bench.accuracy")],
    "bench": [bench("bench", "--quick")],
    "mutants": [[*PYTHON, "tests.campaigns.mutants"]],
}


def main() -> int:
    """Run the named campaign; returns 1 if one of its commands fails or takes too long."""
    (name,) = sys.argv[1:]
    os.chdir(ROOT)
    os.environ |= {"FUZZ_SEED": SEED, "FUZZ_CASES": "2000", "FUZZ_FILES": "20000"}
    (ROOT / "build/campaigns").mkdir(parents=True, exist_ok=True)
    began, failed = time.monotonic(), 0
    for command in CAMPAIGNS[name]:
        failed += not succeeds(command, MAX_SECONDS - (time.monotonic() - began))
    print(f"campaign {name}: {'failed' if failed else 'passed'} in {time.monotonic() - began:.0f} s, seed {SEED}")
    return int(failed > 0)


def succeeds(command: list[str], seconds: float) -> bool:
    """Whether a command ends with status 0 in time; its whole group ends with it."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        return process.wait(max(seconds, 0.0)) == 0
    except subprocess.TimeoutExpired:
        print(f"still running after {MAX_SECONDS} s: {' '.join(command)}")
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
