"""Which tests `make test` runs side by side, and which have the machine for themselves."""

from __future__ import annotations

import functools
import random
import signal
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# the same examples in every run, and any time for each: budgets belong to the benchmarks
hypothesis.settings.register_profile("gate", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("gate")

# a shell that starts the tests in the background lets them ignore interrupts, and so would the programs they start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent
LIVE_PART = "live"
STILL_PARTS = 4
# Most of their tests start daemons and look at when things happen: nothing may run beside them, except what yields.
LIVE = "daemon families faults fusefabric sampler test_alerting"
# Most of these start daemons, browsers or servers too, but the machine may have other work.
WATCHING = ("fleet page terminal web", "datasets docker doctor", "gateway grafana")
# Files of both that may run beside any others, in the time that these leave idle:
# what they wait for may take any time, and nothing in them is late.
STILL = {
    "daemon": "access footprint hung_disk internal_errors other_users real_cgroups",
    "datasets": "collected_files dataset_store fleet_collect fleet_findings fleet_report node_tiers straggler_trace",
    "docker": "compose image systemd workflows",
    "doctor": """bundle bundle_redaction command event_checks examination machine_checks missing_cards port_checks
        sample_checks""",
    "families": "discovery traps",
    "fleet": "clock_offsets hostile_answers lateness node_answers node_config stream_answers targets",
    "gateway": "capture_archive line_rates node_samples",
    "grafana": """alerts board_cost board_looks board_queries boards frames inhibitions previews rules runbooks
        scale""",
    "sampler": "adaptive adaptive_reads cgroup clock counter_file plan sampling_interval",
    "terminal": "driver jobs_in_top screen screen_marks view_bins watchers_events watchers_ring",
    "web": """captures events_route fuzz health host_names job_filter line_rate metrics_route pages past_window
        refusals schema spans static summary topology uvicorn_canary web_config window window_judgement""",
}


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Give each test the same random numbers in every run, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The parts in which `make test` runs the tests, and its limit on what it runs a second time."""
    parser.addoption("--part", choices=[*parts()], help="collect one of the parts that `make test` runs")
    parser.addoption("--again-at-most", type=int, metavar="N", help="refuse to run if more than N files failed")


def pytest_collection_finish(session: pytest.Session) -> None:
    """More failures than the limit are no accident."""
    limit = session.config.getoption("--again-at-most")
    files = {item.path for item in session.items}
    if limit is not None and len(files) > limit:
        reason = f"tests of {len(files)} files failed; those of at most {limit} are run again"
        pytest.exit(reason, pytest.ExitCode.TESTS_FAILED)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that nothing may run beside, and keep them from the parts that run side by side."""
    for item in items:
        if is_live(item.path):
            item.add_marker(pytest.mark.live)
    if part := config.getoption("--part"):
        kept: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            kept[(item.get_closest_marker("live") is not None) == (part == LIVE_PART)].append(item)
        items[:] = kept[True]
        config.hook.pytest_deselected(items=kept[False])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files of the other parts unread."""
    part = config.getoption("--part")
    if part is None or not collection_path.name.startswith("test_"):
        return None
    return collection_path not in parts()[part] or None


@functools.cache
def parts() -> dict[str, frozenset[Path]]:
    """The files of each part."""
    machine = frozenset(HERE.glob("vm/test_*.py"))
    files = set(HERE.glob("*/test_*.py")) - machine
    # a large file takes longer than a small one
    still = sorted(filter(is_still, files), key=lambda path: (path.stat().st_size, path))
    watching = [{path for path in files if path.parent.name in folders.split()} - {*still} for folders in WATCHING]
    return {
        "machine": machine,
        **{f"still-{begin + 1}": frozenset(still[begin::STILL_PARTS]) for begin in range(STILL_PARTS)},
        **{f"watching-{index}": frozenset(part) for index, part in enumerate(watching, 1)},
        LIVE_PART: frozenset(path for path in files if is_live(path) or "mark.live" in path.read_text()),
    }


def is_live(path: Path) -> bool:
    """Whether nothing may run beside the tests of a file."""
    return bool({path.parent.name, path.stem} & {*LIVE.split()}) and not is_still(path)


def is_still(path: Path) -> bool:
    """Whether a file may run beside any others, in the time that these leave idle."""
    folder = path.parent.name
    return (
        folder not in f"{LIVE} {' '.join(WATCHING)}".split()
        or path.stem.removeprefix("test_") in STILL.get(folder, "").split()
    )
