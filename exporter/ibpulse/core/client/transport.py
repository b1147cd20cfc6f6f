"""Bounded requests to one server: no redirects, no proxies, no cookies, no compression; failures are sentences."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlencode

import httpx

from ibpulse.base.clocks import Clock
from ibpulse.base.errors import DaemonError
from ibpulse.base.text import escape_controls, show
from ibpulse.core.answers.members import NOT_OURS, Part, read_members
from ibpulse.core.client.faults import Advice, refusal, silence

SECONDS = 1.0
# a stream has a summary each second
SILENCE_SECONDS = 6.0
MAX_BYTES = 4_000_000
MAX_REFUSAL_BYTES = 10_000
# requests of several viewers at a time; a node serves 32 of one address
MAX_CONNECTIONS = 8
KEPT_SECONDS = 30.0
JSON_TYPE = "application/json"
ANSWERS = (HTTPStatus.OK, HTTPStatus.ACCEPTED)
# a server may close a kept connection at any time
BROKEN_OFF = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
Query = Sequence[tuple[str, str | int]]
UNVERIFIED = "not asked, because its list says http, and with tls_config the password is for https only"


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """How to ask the nodes of a source; `tls` is used for targets with https.

    `authorization` is the value of that header, or empty. `server_name` is the name to expect in certificates, or
    empty for the host of the target. With `verified_only`, no server without a verified certificate gets the
    authorization: a list chooses between http and https, and may be wrong. `advice` says where the access was given.
    """

    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    server_name: str = ""
    authorization: str = field(default="", repr=False)
    verified_only: bool = False
    advice: Advice = field(default_factory=Advice)


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """An answer that is no refusal: headers (names in lower case), body, and the monotonic times around the exchange.

    `received_ns` is the time when its head was there.
    """

    headers: Mapping[str, str]
    body: bytes
    sent_ns: int
    received_ns: int

    @property
    def media_type(self) -> str:
        """The type of the body without parameters."""
        return _media_type(self.headers)


class Requests:
    """What the requests to the server at a base URL have in common."""

    def __init__(self, url: str, access: NodeAccess) -> None:
        self.url, self._access = url, access
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "ibpulse"}
        if access.authorization:
            self._headers["Authorization"] = access.authorization
        self._refused = bool(access.authorization and access.verified_only and not url.startswith("https:"))
        self._server_name = {"sni_hostname": access.server_name} if access.server_name else {}

    def _request(
        self,
        method: str,
        path: str,
        query: Query,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx.Request:
        """A request of which nothing waits longer than this many seconds.

        Raises:
            DaemonError: it would send the password to a server that cannot be verified.
        """
        if self._refused:
            raise DaemonError(UNVERIFIED, kind="refused")
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        extensions = {"timeout": timeouts, **self._server_name}
        with self._explained(""):
            return httpx.Request(
                method, url, headers={**self._headers, **(headers or {})}, content=content, extensions=extensions
            )

    @contextmanager
    def _explained(self, late: str) -> Iterator[None]:
        """Turn exceptions of the transport into errors with a reason, which is `late` for a timeout."""
        try:
            yield
        except (TimeoutError, httpx.TimeoutException) as error:
            raise DaemonError(late) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise silence(error, self._access.advice, encrypted=self.url.startswith("https:")) from error

    def _refusal(self, response: httpx.Response, body: bytes) -> DaemonError:
        return refusal(response.status_code, _media_type(response.headers), body, self._access.advice)


class HttpPeer(Requests):
    """One server at a base URL, with its connections and the access to it. For one event loop."""

    def __init__(
        self,
        url: str,
        access: NodeAccess,
        clock: Clock = time,
        make_transport: Callable[..., httpx.AsyncBaseTransport] = httpx.AsyncHTTPTransport,
    ) -> None:
        super().__init__(url, access)
        self._clock = clock
        # the pool would let requests wait within their time
        self.places = asyncio.Semaphore(MAX_CONNECTIONS)
        """As many requests as connections; further ones wait for a place."""
        limits = httpx.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=2, keepalive_expiry=KEPT_SECONDS
        )
        # a client would keep cookies, and read the environment for proxies and passwords
        self._transport = make_transport(verify=access.tls, limits=limits, trust_env=False, retries=0)
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()

    async def get(
        self,
        path: str = "",
        query: Query = (),
        *,
        max_bytes: int = MAX_BYTES,
        seconds: float = SECONDS,
    ) -> PeerAnswer:
        """The answer to a GET request, in at most this many seconds in total.

        Raises:
            DaemonError: there is no answer (`status` 0), it is too long, or the server refuses.
        """
        request = self._request("GET", path, query, seconds)
        with self._counted(), self._explained(f"no answer within {seconds:g} s"):
            async with asyncio.timeout(seconds):
                try:
                    return await self._exchange(request, max_bytes)
                except BROKEN_OFF:
                    return await self._exchange(request, max_bytes)

    async def post(
        self, path: str, content: bytes, *, max_bytes: int = MAX_BYTES, seconds: float = SECONDS
    ) -> PeerAnswer:
        """The answer to a POST request with JSON, which is sent once only.

        Raises:
            DaemonError: there is no answer (`status` 0), it is too long, or the server refuses.
        """
        request = self._request("POST", path, (), seconds, {"Content-Type": JSON_TYPE}, content)
        with self._counted(), self._explained(f"no answer within {seconds:g} s"):
            async with asyncio.timeout(seconds):
                return await self._exchange(request, max_bytes)

    async def stream(
        self, path: str, query: Query, media_type: str, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The parts of an answer without an end, which begins in time and is never silent for `SILENCE_SECONDS`.

        Raises:
            DaemonError: it does not begin in time, breaks off, is of another media type, or the server refuses.
        """
        request = self._request("GET", path, query, SILENCE_SECONDS, headers)
        response = None
        with self._counted():
            try:
                with self._explained(f"no answer within {SECONDS:g} s"):
                    async with asyncio.timeout(SECONDS):
                        response = await self._transport.handle_async_request(request)
                        if response.status_code != HTTPStatus.OK:
                            raise await self._read_refusal(response)
                if _media_type(response.headers) != media_type or _is_compressed(response):
                    raise DaemonError(f"its answer is not a stream of {media_type}", kind="bad-answer")
                with self._explained(f"silent for {SILENCE_SECONDS:g} s"):
                    async for part in response.aiter_raw():
                        yield part
            finally:
                if response is not None:
                    await response.aclose()

    async def close(self) -> None:
        """Refuse later requests, and close the connections as soon as no request runs."""
        self._closed = True
        # the transport forgets a connection that is being made, and would never close it
        while self._running:
            self._idle.clear()
            await self._idle.wait()
        await self._transport.aclose()

    async def _exchange(self, request: httpx.Request, max_bytes: int) -> PeerAnswer:
        sent_ns = self._clock.monotonic_ns()
        response = await self._transport.handle_async_request(request)
        received_ns = self._clock.monotonic_ns()
        try:
            if response.status_code not in ANSWERS:
                raise await self._read_refusal(response)
            body = await _read_body(response, max_bytes)
        finally:
            await response.aclose()
        return PeerAnswer(lower_names(response.headers), body, sent_ns, received_ns)

    async def _read_refusal(self, response: httpx.Response) -> DaemonError:
        """The error for a refusal, without a detail if its body is too long or compressed."""
        try:
            body = await _read_body(response, MAX_REFUSAL_BYTES)
        except DaemonError:
            body = b""
        return self._refusal(response, body)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Keep the connections open for the block.

        Raises:
            DaemonError: they are closed.
        """
        if self._closed:
            raise DaemonError("it is no longer listed at this address")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._idle.set()


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_compressed(response: httpx.Response) -> bool:
    return bool(response.headers.get("content-encoding", "identity").strip().lower() != "identity")


def refuse_compressed(response: httpx.Response) -> None:
    """Check the head of an answer.

    Raises:
        DaemonError: its body is compressed.
    """
    if _is_compressed(response):
        raise DaemonError("its answer is compressed, which was not asked for", kind="bad-answer")


def refuse_longer(body: bytearray, max_bytes: int) -> None:
    """Check the body of an answer as far as it was read.

    Raises:
        DaemonError: it is too long.
    """
    if len(body) > max_bytes:
        # the same request would have the same answer
        too_long = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise DaemonError(f"its answer is longer than {max_bytes} bytes", too_long, "bad-answer")


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """The body.

    Raises:
        DaemonError: it is too long, or compressed.
    """
    refuse_compressed(response)
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        refuse_longer(body, max_bytes)
    return bytes(body)


def lower_names(headers: httpx.Headers) -> Mapping[str, str]:
    """Headers with their names in lower case."""
    return {name.lower(): text for name, text in headers.items()}


def read_answer(model: type[Part], answer: PeerAnswer) -> Part:
    """The checked answer.

    Raises:
        DaemonError: it is not JSON, or a member is missing or wrong.
    """
    return read_members(model, read_json(answer))


def read_json(answer: PeerAnswer) -> bytes:
    """The body of an answer whose media type is JSON.

    Raises:
        DaemonError: it has another type.
    """
    if answer.media_type != JSON_TYPE:
        sent = show(escape_controls(answer.media_type))
        raise DaemonError(f"its answer is {sent}, not JSON; {NOT_OURS}", kind="bad-answer")
    return answer.body
