"""Bounded requests to one server: no redirects, no proxies, no cookies, no compression; failures are sentences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode

import httpx

from ibpulse.clocks import Clock
from ibpulse.errors import DaemonError
from ibpulse.fleet.node_config import NodeAccess
from ibpulse.fleet.peer_faults import refusal, silence

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
UNVERIFIED = "not asked, because its list says http, and with tls_config the password is for https only"


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


class HttpPeer:
    """One server at a base URL, with its connections and the access to it. For one event loop."""

    def __init__(
        self,
        url: str,
        access: NodeAccess,
        clock: Clock = time,
        make_transport: Callable[..., httpx.AsyncBaseTransport] = httpx.AsyncHTTPTransport,
    ) -> None:
        self.url, self._clock = url, clock
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "ibpulse"}
        if access.authorization:
            self._headers["Authorization"] = access.authorization
        self._refused = bool(access.authorization and access.verified_only and not url.startswith("https:"))
        # the pool would let requests wait within their time
        self.places = asyncio.Semaphore(MAX_CONNECTIONS)
        """As many requests as connections; further ones wait for a place."""
        self._server_name = {"sni_hostname": access.server_name} if access.server_name else {}
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
        query: Sequence[tuple[str, str]] = (),
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
                except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    # a server may close a kept connection at any time
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
        self, path: str, query: Sequence[tuple[str, str]], media_type: str, headers: Mapping[str, str] | None = None
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
                            raise await _read_refusal(response)
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

    def _request(
        self,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]],
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

    async def _exchange(self, request: httpx.Request, max_bytes: int) -> PeerAnswer:
        sent_ns = self._clock.monotonic_ns()
        response = await self._transport.handle_async_request(request)
        received_ns = self._clock.monotonic_ns()
        try:
            if response.status_code not in ANSWERS:
                raise await _read_refusal(response)
            body = await _read_body(response, max_bytes)
        finally:
            await response.aclose()
        headers = {name.lower(): text for name, text in response.headers.items()}
        return PeerAnswer(headers, body, sent_ns, received_ns)

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

    @contextmanager
    def _explained(self, late: str) -> Iterator[None]:
        """Turn exceptions of the transport into errors with a reason, which is `late` for a timeout."""
        try:
            yield
        except (TimeoutError, httpx.TimeoutException) as error:
            raise DaemonError(late) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise silence(error, encrypted=self.url.startswith("https:")) from error


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_compressed(response: httpx.Response) -> bool:
    return bool(response.headers.get("content-encoding", "identity").strip().lower() != "identity")


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """The body.

    Raises:
        DaemonError: it is too long, or compressed.
    """
    if _is_compressed(response):
        raise DaemonError("its answer is compressed, which was not asked for", kind="bad-answer")
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > max_bytes:
            raise DaemonError(f"its answer is longer than {max_bytes} bytes", kind="bad-answer")
    return bytes(body)


async def _read_refusal(response: httpx.Response) -> DaemonError:
    """The error for a refusal, without a detail if its body is too long or compressed."""
    try:
        body = await _read_body(response, MAX_REFUSAL_BYTES)
    except DaemonError:
        body = b""
    return refusal(response.status_code, _media_type(response.headers), body)
