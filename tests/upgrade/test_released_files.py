"""Files that version 0.1 wrote are read by this version, with the same answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ibpulse.cli import main
from ibpulse.ring.file import RingFile
from tests.web.conftest import make_client
from tests.web.rings import Node

RELEASED = Path(__file__).parent / "released"
CAPTURES = sorted(RELEASED.glob("*-release-*.parquet"))
# `load` adds 2 s to the history that the daemon of 0.1 was started with
INTERVAL_NS, CAPACITY = 10_000_000, 1700


@pytest.fixture
def ring(tmp_path: Path) -> RingFile:
    path = tmp_path / "ring"
    path.write_bytes(gzip.decompress((RELEASED / "ring.gz").read_bytes()))
    return RingFile.open_or_create(path, INTERVAL_NS, CAPACITY)


@pytest.fixture
def node(ring: RingFile) -> Node:
    return Node(ring, {"mlx5_0:1": 0, "mlx5_1:1": 1}, now_tick=ring.latest_tick() - ring.segments()[-1][1] - 2)


def read_json(name: str) -> Any:
    return json.loads((RELEASED / name).read_text())


def test_a_ring_is_opened_with_the_samples_that_are_in_it(ring: RingFile) -> None:
    assert ring.slots() == {"mlx5_0:1": 0, "mlx5_1:1": 1}
    assert ring.latest_tick() > 0


async def test_a_window_of_a_ring_has_the_same_values(node: Node) -> None:
    released = read_json("window.json")
    # the mean of one sample is its rate; its maximum was so in 0.1, and is now the certain part
    asked = {"from": released["start_ms"], "to": released["end_ms"], "max_points": 1000, "statistic": "mean"}
    async with make_client(node.parts()) as client:
        answer = await client.get("/api/v1/window", params=asked)
    assert answer.status_code == 200, answer.text
    assert without_history(answer.json()) == without_history(released)
    assert released["holes"] == 0


async def test_a_summary_of_a_ring_has_the_same_values(node: Node) -> None:
    released = read_json("summary.json")
    async with make_client(node.parts()) as client:
        answer = await client.get("/api/v1/summary", params={"window": "5s", "to": released["end_ms"]})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    # the state of each port is new
    assert [port.pop("state") for port in found["ports"]] == ["ACTIVE"] * len(released["ports"])
    # so are the line rate of both rails, and the highest sample in relation to it
    assert found["node"].pop("line_rate_bytes_per_second") == 4 * 50e9
    peak = found["node"].pop("bandwidth_peak_utilization_ratio")
    assert peak == pytest.approx(released["node"]["bandwidth_peak_bytes_per_second"] / (4 * 50e9))
    assert_same(found, released)


def without_history(window: dict[str, Any]) -> dict[str, Any]:
    """The window without what the ring held at the time, the sentence about missing data, and words for what it is.

    Of samples above the line rate 0.1 did not know.
    """
    others = ("history", "coverage", "unit", "implausible", "statistic")
    return {key: value for key, value in window.items() if key not in others}


@pytest.mark.parametrize(
    ("file", "report"), [(RELEASED / "recording.parquet", "report.json"), (CAPTURES[0], "capture_report.json")]
)
def test_a_recording_and_a_capture_have_the_same_report(
    file: Path, report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(file), "--format=json"], {}) == 0
    found, released = without_wording(json.loads(capsys.readouterr().out)), without_wording(read_json(report))
    kept = {row["key"] for row in released["rows"]}
    found["rows"] = [row for row in found["rows"] if row["key"] in kept]
    assert_same(found, released)


def assert_same(found: Any, released: Any, place: str = "") -> None:
    """Equal in every member of the release; numbers but for the order in which sums are rounded.

    The signatures have more reference points, which changes a confidence a little.
    """
    if isinstance(released, dict):
        assert [name for name in found if name in released] == list(released), place
        for name, value in released.items():
            assert_same(found[name], value, f"{place}.{name}")
    elif isinstance(released, list):
        assert len(found) == len(released), place
        for number, value in enumerate(released):
            assert_same(found[number], value, f"{place}[{number}]")
    elif isinstance(released, float):
        assert found == pytest.approx(released, rel=1e-5 if place.endswith("confidence") else 1e-12), place
    else:
        assert found == released, place


def without_wording(report: dict[str, Any]) -> dict[str, Any]:
    """The report without its version, the path of its file, and the words that name and define its rows."""
    rows = [{key: value for key, value in row.items() if key not in ("label", "definition")} for row in report["rows"]]
    recordings = [{**one, "file": ""} for one in report["recordings"]]
    return {**report, "ibpulse_version": "", "rows": rows, "recordings": recordings}


def test_a_configuration_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "print", f"--config.file={RELEASED / 'settings.yaml'}"], {}) == 0
    now = flatten(yaml.safe_load(capsys.readouterr().out))
    released = flatten(yaml.safe_load((RELEASED / "printed.yaml").read_text()))
    assert {name: now[name] for name in released if name in now} == {
        name: value for name, value in released.items() if name in now
    }
    assert len(now) >= 35


def flatten(settings: dict[str, Any]) -> dict[str, Any]:
    return {f"{group}.{name}": value for group, members in settings.items() for name, value in members.items()}
