"""All families that a daemon can export, in the order of the page."""

from __future__ import annotations

from ibpulse.agent.metrics.page import SNAPSHOT_ROWS
from ibpulse.core.metrics import web
from ibpulse.core.metrics.text import process_registry


def exported_names() -> list[str]:
    """Every family by its name in the Prometheus text."""
    of_the_process = [family.samples[0].name for family in process_registry().collect()]
    return [*(row.name for row in SNAPSHOT_ROWS), *of_the_process, *(row.name for row in web.ROWS)]
