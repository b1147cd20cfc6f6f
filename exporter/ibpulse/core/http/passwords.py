"""Checks passwords against bcrypt hashes, outside the event loop.

A single low-priority thread checks them one by one, which limits all clients together to about 20 guesses per second
for hashes of cost 10. Clients have their turns, and those with wrong passwords come last. Logins are remembered and do
not wait again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import bcrypt

from ibpulse.base.deadline import DaemonThreads, yield_to_others
from ibpulse.core.http.admission import FairQueue, FullError
from ibpulse.core.http.reload import cost_of

MAX_WAITING = 64
# logins, and clients with wrong passwords
MAX_REMEMBERED = 1024
# A client with a wrong password waits behind others for this long.
WRONG_SECONDS = 60.0
REMEMBERED_SECONDS = 600.0
# bcrypt ignores further bytes
MAX_PASSWORD_BYTES = 72
# about a tenth of a busy CPU: guesses cost little, and logins stay fast even on a busy node
NICENESS = 10

Credentials = tuple[str, bytes]
Key = TypeVar("Key", str, bytes)


class TooManyChecksError(Exception):
    """Too many password checks are pending."""


def parse_basic(header: bytes) -> Credentials | None:
    """User and password of an Authorization header (RFC 7617); None if it is of another kind."""
    scheme, _, encoded = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None


class PasswordCheck:
    """Checks passwords, and remembers correct ones for a while, as keyed hashes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._running: dict[bytes, asyncio.Task[bool]] = {}
        # when a client last had a wrong password
        self._wrong: OrderedDict[str, float] = OrderedDict()
        self._queue = FairQueue(1, MAX_WAITING, self._rank)
        # niceness is per thread on Linux
        self._thread = DaemonThreads(1, "passwords", partial(yield_to_others, NICENESS))

    async def is_right(self, users: Mapping[str, str], credentials: Credentials, client: str) -> bool:
        """Whether the password is the user's. Takes equally long for unknown users, if all hashes have the same cost.

        `users` has the hash of each user, `client` is where the request comes from.

        Raises:
            TooManyChecksError: too many checks are pending, and this client has most of them or had a wrong password.
        """
        user, password = credentials
        stored = users.get(user) or _unmatchable(users)
        key = self._digest(user, stored, password)
        if self._recalls(key):
            return True
        if key not in self._running:
            check = self._check(key, stored, password, client)
            self._running[key] = task = asyncio.create_task(check, name="password")
            task.add_done_callback(lambda _: self._forget_task(key, task))
        # a client that disconnects must not cancel the check of another with the same password
        return await asyncio.shield(self._running[key])

    def _forget_task(self, key: bytes, task: asyncio.Task[bool]) -> None:
        del self._running[key]
        if not task.cancelled():
            # no request may be left that reads it
            task.exception()

    def _rank(self, client: str) -> int:
        """1 for a client that recently had a wrong password."""
        return int(self._clock() - self._wrong.get(client, -math.inf) < WRONG_SECONDS)

    async def _check(self, key: bytes, stored: str, password: bytes, client: str) -> bool:
        try:
            await self._queue.enter(client)
        except FullError as error:
            raise TooManyChecksError from error
        try:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._thread, _matches, stored, password)
            if right:
                _note(self._remembered, key, self._clock())
            else:
                _note(self._wrong, client, self._clock())
            return right
        finally:
            self._queue.leave(client)

    def _recalls(self, key: bytes) -> bool:
        """Whether this password was correct recently, counted from its last use."""
        now = self._clock()
        used = self._remembered.pop(key, None)
        if used is None or now - used > REMEMBERED_SECONDS:
            return False
        self._remembered[key] = now
        return True

    def _digest(self, *parts: str | bytes) -> bytes:
        """A keyed hash of user, stored hash and password; a changed hash gives a new key."""
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in parts:
            content = part if isinstance(part, bytes) else part.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()


def _note(times: OrderedDict[Key, float], key: Key, now: float) -> None:
    """Remember a time, and forget the oldest of too many."""
    times.pop(key, None)
    times[key] = now
    while len(times) > MAX_REMEMBERED:
        times.popitem(last=False)


def _matches(stored: str, password: bytes) -> bool:
    return bcrypt.checkpw(password[:MAX_PASSWORD_BYTES], stored.encode())


def _unmatchable(users: Mapping[str, str]) -> str:
    """A hash that no password matches, with the highest cost among the users'."""
    cost = max(map(cost_of, users.values()), default=10)
    return f"$2b${cost:02d}${'.' * 53}"
