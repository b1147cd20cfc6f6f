"""Which tests watch the clock: `make test` runs them after all others, with nothing beside them."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# the examples of a test may take any time: budgets belong to the benchmarks
hypothesis.settings.register_profile("ibpulse", deadline=None)
hypothesis.settings.load_profile("ibpulse")

HERE = Path(__file__).parent
# Their tests start daemons, browsers or servers, and look at when things happen.
LIVE = frozenset(
    {
        "daemon",
        "docker",
        "doctor",
        "families",
        "faults",
        "fleet",
        "fusefabric",
        "grafana",
        "page",
        "sampler",
        "terminal",
        "web",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The limit of `make test` on tests that it runs a second time."""
    parser.addoption("--again-at-most", type=int, metavar="N", help="refuse to run if more than N tests failed before")


def pytest_collection_finish(session: pytest.Session) -> None:
    """More failures than the limit are no accident."""
    limit = session.config.getoption("--again-at-most")
    if limit is not None and len(session.items) > limit:
        pytest.exit(f"{len(session.items)} tests failed; at most {limit} are run again", pytest.ExitCode.TESTS_FAILED)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in those directories."""
    for item in items:
        if item.path.relative_to(HERE).parts[0] in LIVE:
            item.add_marker(pytest.mark.live)
