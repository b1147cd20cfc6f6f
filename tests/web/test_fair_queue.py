"""The queue for a few places, without any server."""

from __future__ import annotations

import asyncio

import pytest

from ibpulse.web.fair_queue import FairQueue


async def until_waiting(queue: FairQueue, client: str) -> asyncio.Task[None]:
    """A task that waits for a place."""
    task = asyncio.create_task(queue.enter(client))
    await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.mark.parametrize("granted", [False, True])
async def test_a_client_that_leaves_while_it_waits_keeps_no_place(granted: bool) -> None:
    """Also if its turn came, but it has not run since."""
    queue = FairQueue(1, 10)
    await queue.enter("alice")
    waiting = await until_waiting(queue, "bob")
    if granted:
        queue.leave("alice")
    waiting.cancel()
    assert await asyncio.gather(waiting, return_exceptions=True) != [None]
    if not granted:
        queue.leave("alice")
    async with asyncio.timeout(0):
        await queue.enter("carol")


async def test_the_client_with_fewest_places_is_next() -> None:
    queue = FairQueue(2, 10)
    for _ in range(2):
        await queue.enter("alice")
    again = await until_waiting(queue, "alice")
    other = await until_waiting(queue, "bob")
    queue.leave("alice")
    await asyncio.sleep(0)
    assert (again.done(), other.done()) == (False, True)
    again.cancel()


async def test_of_two_clients_the_older_request_is_next() -> None:
    queue = FairQueue(1, 10)
    await queue.enter("alice")
    first, other, second = [await until_waiting(queue, client) for client in ("bob", "carol", "bob")]
    first.cancel()
    await asyncio.sleep(0)
    queue.leave("alice")
    await asyncio.sleep(0)
    assert (other.done(), second.done()) == (True, False)
    second.cancel()
