"""Which tests watch the clock: `make test` runs them after all others, with nothing beside them."""

from __future__ import annotations

import functools
from pathlib import Path

import hypothesis
import pytest

# the examples of a test may take any time: budgets belong to the benchmarks
hypothesis.settings.register_profile("ibpulse", deadline=None)
hypothesis.settings.load_profile("ibpulse")

HERE = Path(__file__).parent
# Most of their tests start daemons, browsers or servers, and look at when things happen.
LIVE = frozenset(
    {
        "daemon",
        "docker",
        "doctor",
        "families",
        "faults",
        "fleet",
        "fusefabric",
        "gateway",
        "grafana",
        "page",
        "sampler",
        "terminal",
        "web",
    }
)
# Those that need the processors for themselves: many daemons at once, or one whose every missed tick counts.
ALONE = frozenset({"faults", "fusefabric", "gateway", "grafana", "sampler"})
# Their files that may run beside others: what they wait for may take any time, and nothing in them is late.
STILL = {
    "daemon": "access commands footprint hung_disk internal_errors other_users real_cgroups",
    "docker": "compose image systemd workflows",
    "doctor": """bundle bundle_redaction command event_checks examination machine_checks missing_cards port_checks
        sample_checks""",
    "families": "discovery traps",
    "fleet": "clock_offsets hostile_answers lateness node_answers node_config stream_answers targets",
    "gateway": "capture_archive line_rates node_samples",
    "grafana": "boards frames job_joins rules scale",
    "sampler": "adaptive adaptive_reads cgroup clock counter_file plan sampling_interval",
    "terminal": "driver jobs_in_top screen screen_marks view_bins watchers_events watchers_ring",
    "web": """captures events_route fuzz health host_names job_filter line_rate metrics_route pages past_window
        refusals schema spans static summary topology uvicorn_canary web_config window window_judgement""",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The parts in which `make test` runs the tests, and its limit on those that it runs a second time."""
    parser.addoption("--part", type=int, choices=range(1, 6), help="collect a part of the files that watch no clock")
    parser.addoption("--again-at-most", type=int, metavar="N", help="refuse to run if more than N tests failed before")


def pytest_collection_finish(session: pytest.Session) -> None:
    """More failures than the limit are no accident."""
    limit = session.config.getoption("--again-at-most")
    if limit is not None and len(session.items) > limit:
        pytest.exit(f"{len(session.items)} tests failed; at most {limit} are run again", pytest.ExitCode.TESTS_FAILED)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that watch the clock."""
    for item in items:
        if is_live(item.path):
            item.add_marker(pytest.mark.live)
            if folder(item.path) in ALONE:
                item.add_marker(pytest.mark.alone)


def is_live(path: Path) -> bool:
    """Whether a file is in one of those directories, and not one of those that may run beside others."""
    name = folder(path)
    return name in LIVE and path.stem.removeprefix("test_") not in STILL.get(name, "").split()


def folder(path: Path) -> str:
    """The directory of a file below this one."""
    return path.relative_to(HERE).parts[0]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files of the other parts unread."""
    part = config.getoption("--part")
    if part is None or not collection_path.name.startswith("test_"):
        return None
    return collection_path not in parts()[part - 1] or None


@functools.cache
def parts() -> tuple[frozenset[Path], ...]:
    """The files of each part; the first one, which runs beside the virtual machine, starts no daemon."""
    files = [path for path in HERE.glob("*/test_*.py") if not is_live(path)]
    # a large file takes longer than a small one
    files.sort(key=lambda path: (path.stat().st_size, path))
    calm = [path for path in files if path.parent.name not in LIVE]
    rest = [path for path in files if path.parent.name in LIVE or path in calm[::3]]
    return frozenset(calm) - frozenset(rest), *(frozenset(rest[begin::4]) for begin in range(4))
