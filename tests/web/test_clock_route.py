"""`/api/v1/clock`: the wall clock of the node, from which clients measure its offset."""

from __future__ import annotations

import pytest

from ibpulse.base.clocks import ClockState, read_clock_state
from ibpulse.core.answers.clock import ClockAnswer
from tests.web.conftest import make_client
from tests.web.rings import Node


async def ask(node: Node, /, **parts: object) -> dict:
    async with make_client(node.parts(**parts)) as client:
        answer = await client.get("/api/v1/clock")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    ClockAnswer.model_validate(answer.json(), strict=True)
    return answer.json()


async def test_the_time_is_that_of_the_answer_in_nanoseconds(node: Node) -> None:
    times = iter((1763683203030123456, 1763683204000000001))
    for time_ns in (1763683203030123456, 1763683204000000001):
        assert (await ask(node, wall_clock_ns=lambda: next(times)))["time_ns"] == time_ns


@pytest.mark.parametrize(
    ("state", "synchronised"), [(ClockState(True, 0.01), True), (ClockState(False, 16.0), False), (None, None)]
)
async def test_it_says_whether_the_clock_is_synchronised_as_far_as_the_kernel_does(
    node: Node, state: ClockState | None, synchronised: bool | None
) -> None:
    assert await ask(node, wall_clock_ns=lambda: 1763683203030123456, clock_state=lambda: state, name="gpu-1") == {
        "node": "gpu-1",
        "synchronised": synchronised,
        "time_ns": 1763683203030123456,
    }


def test_the_kernel_gives_the_state_of_its_clock() -> None:
    state = read_clock_state()
    assert state is None or state.max_error_seconds >= 0
