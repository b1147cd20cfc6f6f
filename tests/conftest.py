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
    {"daemon", "docker", "doctor", "families", "fusefabric", "grafana", "page", "sampler", "terminal", "web"}
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in those directories."""
    for item in items:
        if item.path.relative_to(HERE).parts[0] in LIVE:
            item.add_marker(pytest.mark.live)
