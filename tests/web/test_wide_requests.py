"""Wide windows: few at a time, the others refused, and a place comes back whatever becomes of the client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping

import pytest
from starlette.requests import Request
from starlette.responses import Response

from ibpulse.web import wide_requests
from ibpulse.web.parts import WebLimits
from ibpulse.web.problems import ProblemError
from ibpulse.web.routes.window_route import answer_window, is_wide
from ibpulse.web.wide_requests import WideRequests
from ibpulse.web.window.query import WindowQuery, plan_window
from ibpulse.web.window.values import WindowPlan
from tests.web.conftest import make_client
from tests.web.rings import CAPACITY, Node

WINDOW = "/api/v1/window"


class Held:
    """A wall clock that holds up whoever reads it in a thread: a wide request lasts as long as a test wants."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock, self.go, self.main = clock, threading.Event(), threading.get_ident()
        self.waiting = threading.Semaphore(0)

    def __call__(self) -> int:
        if threading.get_ident() != self.main:
            self.waiting.release()
            assert self.go.wait(20)
        return self._clock()

    async def until_waiting(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.waiting.acquire, True, 20)


@pytest.fixture
def held(node: Node) -> Iterator[Held]:
    made = Held(node.parts().wall_clock_ns)
    yield made
    made.go.set()


LIMITS = WebLimits(max_wide_requests=2, wide_values=100)


def request_from(address: str) -> Request:
    return Request({"type": "http", "headers": [], "client": (address, 1)})


ALICE = request_from("10.0.0.1")


async def test_wide_requests_wait_for_a_moment_and_those_beyond_the_queue_are_refused(
    node: Node, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_requests, "MAX_WAITING", 1)
    async with make_client(node.parts(limits=LIMITS, wall_clock_ns=held)) as client:
        running = [asyncio.create_task(client.get(WINDOW, params={"last": "1s"})) for _ in range(2)]
        await held.until_waiting(2)
        answers = [asyncio.create_task(client.get(WINDOW, params={"last": "1s"})) for _ in range(2)]
        (refused_one,), (waiting,) = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
        refused = await refused_one
        small = await client.get(WINDOW, params={"last": "100ms"})
        held.go.set()
        answered = await asyncio.gather(*running, waiting)
    assert [answer.status_code for answer in (*answered, small)] == [200] * 4
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    document = refused.json()
    assert document["bound"] == {"name": "max_wide_requests", "limit": 2, "wide_values": 100}
    assert document["detail"] == (
        "2 wide window requests are already running, which is the maximum, and others wait. Try again in a second, or "
        "ask for at most 100 values with max_points, fewer ports or a shorter span."
    )
    assert answered[0].json()["points"] == 100


async def test_a_request_does_not_wait_for_ever(node: Node, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_requests, "WAIT_SECONDS", 0.05)
    async with make_client(node.parts(limits=LIMITS, wall_clock_ns=held)) as client:
        running = [asyncio.create_task(client.get(WINDOW, params={"last": "1s"})) for _ in range(2)]
        await held.until_waiting(2)
        assert (await client.get(WINDOW, params={"last": "1s"})).status_code == 503
        held.go.set()
        await asyncio.gather(*running)
        assert (await client.get(WINDOW, params={"last": "1s"})).status_code == 200


async def test_a_client_that_hangs_up_keeps_its_place_until_its_thread_ends(
    node: Node, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_requests, "WAIT_SECONDS", 0.05)
    parts = node.parts(limits=LIMITS, wall_clock_ns=held)
    wide, plan = WideRequests(WebLimits(max_wide_requests=1), "windows", "less"), plan_of(node, {"last": "1s"})
    gone = asyncio.create_task(wide.run(ALICE, answer_window, parts, plan, "json"))
    await held.until_waiting(1)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    with pytest.raises(ProblemError):
        await wide.run(ALICE, answer_window, parts, plan, "json")
    held.go.set()
    assert isinstance(await first_answer(wide, node, plan), Response)


async def first_answer(wide: WideRequests, node: Node, plan: WindowPlan) -> Response:
    while True:
        try:
            return await wide.run(ALICE, answer_window, node.parts(), plan, "json")
        except ProblemError:
            await asyncio.sleep(0)


async def test_a_failure_in_the_thread_gives_the_place_back(node: Node) -> None:
    def fail() -> int:
        raise RuntimeError("no clock")

    wide, plan = WideRequests(WebLimits(max_wide_requests=1), "windows", "less"), plan_of(node, {"last": "1s"})
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no clock"):
            await wide.run(ALICE, answer_window, node.parts(wall_clock_ns=fail), plan, "json")
        await first_answer(wide, node, plan)


def plan_of(node: Node, query: Mapping[str, str], **changes: object) -> WindowPlan:
    return plan_window(WindowQuery.model_validate(query), node.parts(**changes))


def test_what_is_read_counts_as_much_as_what_is_returned(node: Node) -> None:
    parts = node.parts(limits=WebLimits(wide_values=2 * 2 * CAPACITY - 1))
    assert is_wide(plan_of(node, {"last": "1d", "max_points": "10"}), parts)
    assert not is_wide(plan_of(node, {"last": "1d", "max_points": "10"}), node.parts())
    assert not is_wide(plan_of(node, {"last": "60s"}), node.parts())
