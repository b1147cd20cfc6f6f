"""Windows and summaries of one job have the ports that it had in the span, and their samples while it had them."""

from __future__ import annotations

import io
import json
from typing import Any

import httpx
import numpy as np
import pytest

from ibpulse.agent.web.parts import WebParts
from ibpulse.core.events import EventLog
from ibpulse.core.jobs import PlacedJob
from tests.web.conftest import make_client
from tests.web.event_logs import job_event, placed, view_jobs
from tests.web.rings import EPOCH, Node

FIRST, SECOND = "mlx5_0:1", "mlx5_1:1"
A, A_LATER, B = (placed(*words) for words in (("a", "mlx5_0"), ("a", "mlx5_1"), ("b", "mlx5_1")))
SPAN = {"from": (EPOCH + 100) * 10, "to": (EPOCH + 900) * 10}


def parts_of(node: Node, *events: tuple[int, str, PlacedJob], running: tuple[PlacedJob, ...] = ()) -> WebParts:
    """The node with jobs that begin, change or end at these ticks after the epoch."""
    log = EventLog()
    for tick, kind, job in events:
        log.add(job_event(node, EPOCH + tick, kind, job))
    return node.parts(events=log, jobs=lambda: view_jobs(log, *running))


def two_jobs(node: Node) -> WebParts:
    """Job a has the first port from tick 200 to 500; job b the second from 300 on, and it is running."""
    return parts_of(
        node, (200, "job-began", A), (300, "job-began", B), (500, "job-ended", A), running=(placed("b", "mlx5_1"),)
    )


async def ask(parts: WebParts, path: str, **query: Any) -> httpx.Response:
    async with make_client(parts) as client:
        return await client.get(path, params=query)


async def window(parts: WebParts, **query: Any) -> dict[str, Any]:
    answer = await ask(parts, "/api/v1/window", **{**SPAN, **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def summary(parts: WebParts, **query: Any) -> dict[str, Any]:
    answer = await ask(parts, "/api/v1/summary", **query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def values_of(found: dict[str, Any]) -> dict[str, np.ndarray]:
    """The values of each series, NaN where data is missing, one per tick from tick 100 on."""
    return {f"{one['port']} {one['direction']}": np.array(one["values"], dtype=float) for one in found["series"]}


async def test_a_window_of_a_job_has_its_ports_while_it_had_them(node: Node) -> None:
    parts = two_jobs(node)
    every = values_of(await window(parts))
    for job, port, had in (("a", FIRST, range(200, 500)), ("b", SECOND, range(300, 900))):
        found = await window(parts, job=job)
        ticks = np.arange(100, 900)
        mine = (ticks >= had.start) & (ticks < had.stop)
        assert {name.partition(" ")[0] for name in values_of(found)} == {port}
        for name, values in values_of(found).items():
            np.testing.assert_array_equal(values, np.where(mine, every[name], np.nan))
            assert 0 < np.count_nonzero(np.isnan(values)) < len(values)
        # both directions of one port
        assert found["holes"] == sum(int(np.isnan(values).sum()) for values in values_of(found).values())


async def test_a_window_of_a_job_describes_its_ports(node: Node) -> None:
    found = await window(two_jobs(node), job="a")
    assert found["job"] == {
        "job_id": "a",
        "scheduler": "slurm",
        "running": False,
        "had": [
            {
                "ports": [FIRST],
                "from_ms": (EPOCH + 200) * 10,
                "from_uncertainty_ms": 200,
                "to_ms": (EPOCH + 500) * 10,
                "to_uncertainty_ms": 200,
            }
        ],
    }
    said = " values are missing. Job a had mlx5_0:1 only for a part of the span; other samples are left out."
    assert found["coverage"].endswith(said)
    # bins that are the job's in part have values
    bins = await window(two_jobs(node), job="a", resolution="8s")
    assert bins["coverage"] == f"No{said}"
    whole = await window(two_jobs(node), job="a", **{"from": (EPOCH + 320) * 10, "to": (EPOCH + 400) * 10})
    assert whole["coverage"] == "No values are missing."
    assert whole["job"] == found["job"]
    assert "job" not in await window(two_jobs(node))


async def test_a_job_that_moved_to_another_port_has_each_for_its_time(node: Node) -> None:
    parts = parts_of(node, (200, "job-began", A), (400, "job-change", A_LATER), (600, "job-ended", A_LATER))
    found = values_of(await window(parts, job="a", direction="receive"))
    held = {name: np.flatnonzero(~np.isnan(values)) + 100 for name, values in found.items()}
    # of full_node, two samples at 305 and the sample after them are missing, as is the one at 555 and the next
    missing = {305, 306, 307, 555, 556}
    assert held[f"{FIRST} receive"].tolist() == [tick for tick in range(200, 400) if tick not in missing]
    assert held[f"{SECOND} receive"].tolist() == [tick for tick in range(400, 600) if tick not in missing]


NONE = "Job a had none of the requested ports in this span, as far as is known."


async def test_port_and_job_together_choose_the_ports_that_are_both(node: Node) -> None:
    both = parts_of(node, running=(placed("a", "mlx5_0", "mlx5_1"),))
    assert {one["port"] for one in (await window(both, job="a", port="mlx5_1"))["series"]} == {SECOND}
    neither = await window(two_jobs(node), job="a", port="mlx5_1")
    assert (neither["series"], neither["coverage"], neither["job"]["had"][0]["ports"]) == ([], NONE, [FIRST])


async def test_of_very_many_changes_the_newest_are_listed_in_a_header_that_clients_accept(node: Node) -> None:
    changes = [(300 + number, "job-change", (A, A_LATER)[number % 2]) for number in range(520)]
    parts = parts_of(node, (200, "job-began", A_LATER), *changes, running=(A_LATER,))
    had = (await window(parts, job="a"))["job"]["had"]
    assert [each["from_ms"] for each in had] == [(EPOCH + tick) * 10 for tick in range(788, 820)]
    answer = await ask(parts, "/api/v1/window", job="a", format="npy", **SPAN)
    header = answer.headers["X-Ibpulse-Window"]
    assert json.loads(header)["job"]["had"] == had
    assert len(header) < 8192


async def test_a_job_without_ports_in_the_span_has_no_series_and_no_numbers(node: Node) -> None:
    early = {"from": EPOCH * 10, "to": (EPOCH + 100) * 10}
    found = await window(two_jobs(node), job="a", **early)
    assert (found["series"], found["coverage"]) == ([], NONE)
    answer = await ask(two_jobs(node), "/api/v1/window", job="a", format="npy", **early)
    assert np.load(io.BytesIO(answer.content)).shape == (0, 100)
    found = await summary(two_jobs(node), job="a", **early)
    assert (found["ports"], found["node"]["rails"], found["node"]["observed_seconds"]) == ([], 0, 0.0)
    assert (found["node"]["step_period_seconds"], found["job"]["had"]) == (None, [])


@pytest.mark.parametrize("path", ["/api/v1/window", "/api/v1/summary", "/api/v1/stream"])
async def test_an_unknown_job_gets_the_names_of_the_known(node: Node, path: str) -> None:
    answer = await ask(two_jobs(node), path, job="1")
    document = answer.json()
    assert (answer.status_code, document["type"]) == (404, "/api/docs#unknown-job")
    assert document["known_jobs"] == ["b", "a"]
    nothing = (await ask(node.parts(), path, job="1")).json()
    assert nothing["detail"] == "No such job: '1'. Known jobs: none."


async def test_only_the_exact_id_is_a_job_and_any_other_text_is_shown_escaped(node: Node) -> None:
    for job in ("", "A", "a\n", "%61", "slurm:", ":a", "slurm:a:", "flux:a", "\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 255):
        answer = await ask(two_jobs(node), "/api/v1/window", job=job)
        assert (answer.status_code, answer.json()["detail"]) == (404, f"No such job: {job[:64]!r}. Known jobs: b, a.")


async def test_an_id_that_two_schedulers_use_needs_the_scheduler(node: Node) -> None:
    parts = parts_of(node, running=(A, placed("a", "mlx5_1", scheduler="flux")))
    answer = await ask(parts, "/api/v1/window", job="a")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "job: 'a' is the id of several jobs; use flux:a or slurm:a"
    for name, port in (("slurm:a", FIRST), ("flux:a", SECOND)):
        assert {one["port"] for one in (await window(parts, job=name))["series"]} == {port}


def without(found: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


async def test_a_summary_of_the_only_job_is_that_of_the_node(node: Node) -> None:
    parts = parts_of(node, running=(placed("a", "mlx5_0", "mlx5_1"),))
    found = await summary(parts, last="5s", job="a")
    assert found.pop("job")["had"][0]["ports"] == [FIRST, SECOND]
    assert found == await summary(parts, last="5s")


async def test_a_summary_counts_only_the_seconds_of_the_job(node: Node) -> None:
    parts = parts_of(node, (301, "job-began", A), (701, "job-ended", A))
    found = await summary(parts, job="a", **SPAN)
    assert (found["start_ms"], found["end_ms"]) == (SPAN["from"], SPAN["to"])
    # whole seconds end with the tick that bears their number
    then = await summary(parts, **{"from": (EPOCH + 300) * 10, "to": (EPOCH + 700) * 10})
    (port,), mine = found["ports"], found["node"]
    expected = then["ports"][0]
    assert port["port"] == FIRST
    assert port["observed_seconds"] == pytest.approx(expected["observed_seconds"], rel=1e-6)
    for way in ("transmit", "receive"):
        for name in ("mean_bytes_per_second", "peak_bytes_per_second", "duty_cycle_ratio"):
            assert port[way][name] == pytest.approx(expected[way][name], rel=1e-6), (way, name)
    assert (mine["rails"], mine["active_rails"], mine["line_rate_bytes_per_second"]) == (1, 1, 2 * 50e9)
    assert mine["bandwidth_peak_bytes_per_second"] == pytest.approx(26e9, rel=1e-6)
    assert mine["bandwidth_peak_utilization_ratio"] == pytest.approx(26e9 / 100e9, rel=1e-6)
    assert mine["observed_seconds"] == pytest.approx(4.0, abs=0.1)
    assert mine["step_period_seconds"] == pytest.approx(1.0, rel=0.02)
    assert mine["rail_fairness_ratio"] == pytest.approx(1.0)


async def test_a_second_that_is_the_jobs_in_part_counts_in_part(node: Node) -> None:
    parts = parts_of(node, (330, "job-began", A), (480, "job-ended", A))
    found = await summary(parts, job="a", **SPAN)
    assert found["ports"][0]["observed_seconds"] == pytest.approx(1.5, abs=0.02)
    assert found["node"]["observed_seconds"] == pytest.approx(1.5, abs=0.02)
    # it sends in the first 0.2 s of each second: from 4.00 to 4.20 s
    assert found["ports"][0]["transmit"]["duty_cycle_ratio"] == pytest.approx(0.2 / 1.5, abs=0.02)
    assert found["node"]["line_rate_bytes_per_second"] == 2 * 50e9
