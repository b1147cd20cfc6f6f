"""Who is admitted when all places are taken: requests, connections and viewers, and the rule that they share."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from ibpulse.agent.web.parts import WebLimits
from ibpulse.core.http import admission
from ibpulse.core.http.admission import (
    FairQueue,
    FullError,
    OpenConnection,
    OpenConnections,
    ParallelRequests,
    client_of,
    make_room,
)
from ibpulse.core.http.problems import ProblemError
from tests.running import HANG_SECONDS
from tests.tables import for_each
from tests.web.conftest import make_client
from tests.web.rings import Node

WINDOW = "/api/v1/window"
LIMITS = WebLimits(max_wide_requests=2, wide_values=100)


class Held:
    """A wall clock that holds up whoever reads it in a thread: a wide request lasts as long as a test wants."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock, self.go, self.main = clock, threading.Event(), threading.get_ident()
        self.waiting = threading.Semaphore(0)

    def __call__(self) -> int:
        if threading.get_ident() != self.main:
            self.waiting.release()
            assert self.go.wait(HANG_SECONDS)
        return self._clock()

    async def until_waiting(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.waiting.acquire, True, 20)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held(lambda: 0)
    yield made
    made.go.set()


def request_from(address: str) -> Request:
    return Request({"type": "http", "headers": [], "client": (address, 1)})


async def settle() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@for_each(
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::4", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ]
)
def test_a_client_is_an_address_or_a_network_of_ipv6(address: str, client: str) -> None:
    assert client_of(address) == client


def test_the_busiest_client_loses_its_newest() -> None:
    """Every holding of up to five things by three clients, with and without clients of a higher rank."""
    for size, late in itertools.product(range(6), ("", "a", "d", "ad")):
        for owners, newcomer in itertools.product(itertools.product("abc", repeat=size), "abd"):
            check_room(owners, newcomer, late)


def check_room(owners: tuple[str, ...], newcomer: str, late: str) -> None:
    case, before = (owners, newcomer, late), dict(enumerate(owners))

    def standing(client: str, more: int = 0) -> tuple[bool, int]:
        return client in late, owners.count(client) + more

    after = dict(before)
    assert make_room(after, len(owners) + 1, newcomer) is None, case
    try:
        gone = make_room(after, len(owners), newcomer, lambda client: client in late)
    except FullError:
        assert all(standing(client) <= standing(newcomer, 1) for client in owners), case
        assert after == before, case
        return
    assert gone is not None
    owner = owners[gone]
    assert standing(newcomer, 1) < standing(owner) == max(map(standing, owners)), case
    assert gone == max(place for place, client in before.items() if client == owner), case
    assert after == {place: client for place, client in before.items() if place != gone}, case


@for_each(
    {
        "clients have turns, those of a higher rank come last": ("aLaaabbc", "", "aabcabaL"),
        "the oldest request of a client is next": ("aabb", "", "aabb"),
        "with one that gave up, its client waits for its next one": ("abcb", "b", "acb"),
    }
)
def test_clients_have_their_turns(asked: str, gives_up: str, expected: str) -> None:
    async def run() -> None:
        queue, entered = FairQueue(1, 10, lambda client: client.isupper()), []

        async def enter(client: str) -> None:
            await queue.enter(client)
            entered.append(client)

        tasks = []
        for client in asked:
            tasks.append(asyncio.create_task(enter(client)))
            await settle()
        if gives_up:
            tasks[asked.index(gives_up)].cancel()
            await settle()
        for number in range(len(expected)):
            queue.leave(entered[number])
            await settle()
        assert "".join(entered) == expected

    asyncio.run(run())


Requests = dict[asyncio.Task[None], str]


class Crowd:
    """Requests of three clients for three places, six of which may wait; each ends when it is told to."""

    def __init__(self) -> None:
        self.queue = FairQueue(3, 6)
        self.all: list[asyncio.Task[None]] = []
        self.waiting: Requests = {}
        self.inside: Requests = {}
        self.ends: dict[asyncio.Task[None], asyncio.Future[None]] = {}

    def ask(self, client: str) -> None:
        task = asyncio.create_task(self._ask(client))
        self.all.append(task)
        self.waiting[task] = client
        # one that is cancelled before it begins runs nothing
        task.add_done_callback(lambda _: self.waiting.pop(task, None))

    async def _ask(self, client: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        await self.queue.enter(client)
        self.inside[task] = self.waiting.pop(task)
        self.ends[task] = asyncio.get_running_loop().create_future()
        try:
            await self.ends[task]
        finally:
            del self.inside[task]
            self.queue.leave(client)

    def act(self, random: Random) -> str:
        """A request comes, ends or gives up; returns which."""
        action = random.choice(["ask", "ask", "end", "give up"])
        if action == "ask":
            self.ask(random.choice("aaabbc"))
        elif action == "give up" and self.waiting:
            random.choice([*self.waiting]).cancel()
        elif action == "end" and self.inside:
            task = random.choice([*self.inside])
            end = random.choice(["cancelled", "failed", "done"])
            if end == "cancelled":
                task.cancel()
            elif not self.ends[task].done():
                self.ends[task].set_exception(OSError()) if end == "failed" else self.ends[task].set_result(None)
        return action

    def check(self, action: str, waiting: Requests, inside: Requests) -> None:
        """Whether the right ones wait and are inside after an action, given those before."""
        if action == "ask" and len(waiting) < 6:
            assert self.waiting.keys() | self.inside.keys() == {*waiting, *inside, self.all[-1]}
        elif action == "end":
            # the next one is of a client with fewest places
            held = Counter(client for task, client in inside.items() if task in self.inside)
            for task in self.inside.keys() - inside.keys():
                assert held[waiting[task]] == min(held[client] for client in waiting.values())


async def test_every_ended_request_gives_its_place_back() -> None:
    """Many requests that end well, fail, or give up, also in the moment in which their turn has come."""
    random, crowd, settled = Random(45), Crowd(), False
    for _ in range(5000):
        waiting, inside = dict(crowd.waiting), dict(crowd.inside)
        action = crowd.act(random)
        was_settled, settled = settled, random.random() < 0.7
        for _ in range(4 if settled else random.randrange(3)):
            await asyncio.sleep(0)
        if settled:
            assert len(crowd.waiting) <= 6
            assert len(crowd.inside) == 3 or (len(crowd.inside) < 3 and not crowd.waiting)
        if settled and was_settled:
            crowd.check(action, waiting, inside)
    for task in crowd.all:
        task.cancel()
    found = await asyncio.gather(*crowd.all, return_exceptions=True)
    assert {type(each) for each in found} == {type(None), OSError, FullError, asyncio.CancelledError}
    for _ in range(3):
        async with asyncio.timeout(0):
            await crowd.queue.enter("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await crowd.queue.enter("a")


async def test_requests_beyond_the_queue_are_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_WAITING", 1)
    held = Held(node.now_ns)
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


ALICE, BOB = request_from("10.0.0.1"), request_from("10.0.0.2")


async def test_requests_in_the_event_loop_have_places_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    requests, order = ParallelRequests(1, "windows of jobs are already being read"), []

    async def ask(request: Request) -> None:
        async with requests.place(request):
            order.append(request)
            await asyncio.sleep(0)

    async with requests.place(ALICE):
        waiting = [asyncio.create_task(ask(request)) for request in (ALICE, ALICE, BOB)]
        await settle()
        monkeypatch.setattr(admission, "WAIT_SECONDS", 0)
        with pytest.raises(ProblemError) as refusal:
            await ask(BOB)
    assert refusal.value.args == (
        "1 windows of jobs are already being read, which is the maximum. Try again in a second.",
    )
    assert refusal.value.members == {"bound": {"name": "max_parallel_requests", "limit": 1}}
    await asyncio.gather(*waiting)
    assert order.index(BOB) == 1
    with pytest.raises(OSError, match="no node"):
        async with requests.place(ALICE):
            raise OSError("no node")
    await ask(BOB)


async def test_a_client_that_hangs_up_keeps_its_place_until_its_thread_ends(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "WAIT_SECONDS", 0)
    requests = WebLimits(max_wide_requests=1).wide_requests("windows", "less")
    gone = asyncio.create_task(requests.run(ALICE, held))
    await held.until_waiting(1)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    with pytest.raises(ProblemError):
        await requests.run(BOB, Response)
    held.go.set()
    await until_free(requests)


async def until_free(requests: ParallelRequests) -> None:
    while True:
        try:
            await requests.run(BOB, Response)
            return
        except ProblemError:
            await asyncio.sleep(0)


async def test_a_failure_in_the_thread_gives_the_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Response:
        raise RuntimeError("no clock")

    monkeypatch.setattr(admission, "WAIT_SECONDS", 0)
    requests = WebLimits(max_wide_requests=1).wide_requests("windows", "less")
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no clock"):
            await requests.run(ALICE, fail)
        assert (await requests.run(ALICE, Response)).status_code == 200


async def test_a_thread_that_cannot_start_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    requests = WebLimits(max_wide_requests=1).wide_requests("windows", "less")
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            await requests.run(ALICE, Response)
    monkeypatch.setattr(admission, "WAIT_SECONDS", 0)
    assert (await requests.run(ALICE, Response)).status_code == 200


class Wire:
    """A transport that notes that it was closed."""

    def __init__(self) -> None:
        self.unsent = 0
        self.closed = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.closed = True


BOUNDS = {"MAX_CONNECTIONS": 6, "MAX_CONNECTIONS_PER_CLIENT": 4, "SPARE_CONNECTIONS": 4}


def test_connections_stay_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clients open connections; some wait for an answer, some leave, and refused ones try again."""
    for name, bound in BOUNDS.items():
        monkeypatch.setattr(admission, name, bound)
    random, opened = Random(45), OpenConnections()
    everyone: list[Any] = []
    for now in range(3000):
        alive = [each for each in everyone if not each.transport.closed]
        before = {each: (each.admitted, each.is_idle()) for each in alive}
        if random.random() < 0.5:
            everyone.append(chosen := connect(random.choice("aaabbcd"), now))
            opened.add(chosen)
        elif alive:
            chosen = random.choice(alive)
            change = random.choice(["answered", "asks", "unread", "admitted", "gone"])
            if change == "gone":
                opened.remove(chosen)
                everyone.remove(chosen)
                continue
            chosen.waiting_since = None if change == "asks" else now
            chosen.transport.unsent = int(change == "unread")
            before[chosen] = (chosen.admitted, chosen.is_idle())
            opened.admit(chosen)
        else:
            continue
        alive = [each for each in everyone if not each.transport.closed]
        check_bounds(alive)
        check_closed(chosen.client, before, [each for each in before if each not in alive])


def connect(client: str, now: int) -> Any:
    made: Any = OpenConnection(None, client)  # type: ignore[arg-type]
    made.transport, made.waiting_since = Wire(), now
    return made


def check_bounds(alive: list[Any]) -> None:
    for admitted, total, own in ((True, 6, 4), (False, 4, 4)):
        counts = Counter(each.client for each in alive if each.admitted == admitted)
        assert counts.total() <= total
        assert max(counts.values(), default=0) <= own


def check_closed(newcomer: str, before: Mapping[Any, tuple[bool, bool]], closed: list[Any]) -> None:
    """Of the client with most or the newcomer: the admitted one that is idle longest, or the oldest of the others."""
    for each in closed:
        admitted, _ = before[each]
        rivals = [other for other, (inside, idle) in before.items() if inside == admitted and (idle or not admitted)]
        counts = Counter(other.client for other in rivals)
        assert newcomer == each.client or counts[each.client] == max(counts.values())
        own = [other for other in rivals if other.client == each.client]
        assert each is (min(own, key=lambda one: one.waiting_since) if admitted else own[0])
