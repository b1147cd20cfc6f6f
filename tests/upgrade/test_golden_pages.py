"""The golden pages of every hardware family against those of 0.1: only wording, new families and roles may differ."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

RELEASED = Path(__file__).parent / "released" / "golden.tar.xz"
GOLDEN = Path(__file__).parents[1] / "families" / "golden"
NEW_FAMILIES = (
    "ibpulse_port_down_seconds_total",
    "ibpulse_port_state_changes_total",
    "ibpulse_port_problem",
    "ibpulse_events_total",
    "ibpulse_port_trained_down",
    "ibpulse_node_expected_rails",
    "ibpulse_node_line_rate_bytes_per_second",
    "ibpulse_node_bandwidth_peak_utilization_ratio",
    "ibpulse_port_implausible_samples_total",
    "ibpulse_internal_errors_total",
    "ibpulse_node_last_traffic_timestamp_seconds",
    "ibpulse_node_jobs",
    "ibpulse_port_jobs",
    "ibpulse_port_job_info",
    "ibpulse_job_",
)
ROLE = re.compile(r'(?<=,)role="[a-z]+",')
FINDING = re.compile(r"(OK|WARN|FAIL|INFO|SKIP)\s+([a-z-]+)  ")
FACT = re.compile(r"[\w./*+-]*\d[\w./:*+-]*")


def read_released() -> dict[str, str]:
    """The pages of 0.1 by `family/file`."""
    with tarfile.open(RELEASED) as archive:
        members = [member for member in archive if member.isfile()]
        texts = {member.name: archive.extractfile(member) for member in members}
        return {name.removeprefix("golden/"): file.read().decode() for name, file in texts.items() if file}


PAGES = read_released()


def findings(page: str) -> list[tuple[str, str, frozenset[str]]]:
    """Level, check and facts (names, numbers, paths: words with a digit) of every finding of a doctor page."""
    found: list[tuple[str, str, set[str]]] = []
    for line in page.splitlines():
        if match := FINDING.match(line):
            found.append((match[1], match[2], set()))
        if found:
            found[-1][2].update(word.rstrip(".:/") for word in FACT.findall(line))
    return [(level, check, frozenset(facts)) for level, check, facts in found]


def test_every_family_of_the_release_is_still_there() -> None:
    assert {f"{path.parent.name}/{path.name}" for path in GOLDEN.glob("*/*.txt")} >= set(PAGES)
    assert len(PAGES) == 48


@pytest.mark.parametrize("name", [name for name in PAGES if name.endswith("metrics.txt")])
def test_metrics_are_the_same_but_for_new_families_and_roles(name: str) -> None:
    lines = (GOLDEN / name).read_text().splitlines(keepends=True)
    kept = [ROLE.sub("", line) for line in lines if not line.removeprefix("# TYPE ").startswith(NEW_FAMILIES)]
    assert "".join(kept) == PAGES[name]


@pytest.mark.parametrize("name", [name for name in PAGES if name.endswith("doctor.txt")])
def test_doctor_finds_the_same_with_other_words(name: str) -> None:
    released = findings(PAGES[name])
    assert len(released) >= 2
    assert findings((GOLDEN / name).read_text()) == released
