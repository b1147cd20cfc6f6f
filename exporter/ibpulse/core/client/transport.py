"""Bounded requests to one server: no redirects, no proxies, no cookies, no compression; failures are sentences."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlencode

import httpx
import numpy as np
import orjson

from ibpulse.base.clocks import Clock
from ibpulse.base.errors import DaemonError
from ibpulse.base.text import escape_controls, show
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.members import NOT_OURS, Part, read_members, unexpected
from ibpulse.core.answers.samples import NPY_HEADER, NPY_TYPE, WindowAnswer, WindowHead, encode_npy
from ibpulse.core.arrays import Bools, Singles
from ibpulse.core.model import DIRECTIONS

MAX_REASON = 300
MAX_CAUSES = 20
KEY_USAGE = "make its authority again with -addext keyUsage=critical,keyCertSign, as RFC 5280 wants it"
PROBLEM_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Advice:
    """Ends of sentences about a missing password, an unknown certificate and a server that does not listen."""

    password: str = "is the one in the node configuration file of its source right?"
    authority: str = "give its authority as ca_file, or server_name"
    running: str = "is `ibpulse serve` running there?"


def silence(error: Exception, advice: Advice, *, encrypted: bool) -> DaemonError:
    """The error for a request without an answer; `encrypted` is whether it was sent with TLS."""
    causes = _causes(error)
    refused = any(isinstance(cause, ssl.SSLError) for cause in causes)
    return DaemonError(
        _say_silent(error, causes, advice, encrypted=encrypted), kind="refused" if refused else "no-answer"
    )


def _say_silent(error: Exception, causes: list[BaseException], advice: Advice, *, encrypted: bool) -> str:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = escape_controls(cause.verify_message)[:MAX_REASON]
            # Python 3.13 verifies strictly, and `openssl req -x509` of OpenSSL 3.0 makes such authorities
            wanted = KEY_USAGE if "key usage" in reason else advice.authority
            return f"its certificate is not trusted ({reason}); {wanted}"
        if isinstance(cause, ssl.SSLError):
            reason = escape_controls(cause.reason or "failed").replace("_", " ").lower()[:MAX_REASON]
            return f"TLS failed ({reason}); does it want a certificate of ours, or does it not use TLS? then use http"
        if isinstance(cause, socket.gaierror):
            return "its host name cannot be resolved"
        if isinstance(cause, ConnectionRefusedError):
            return f"it refuses connections; {advice.running}"
    if isinstance(error, httpx.ConnectError):
        return f"it cannot be reached; is the network up, and {advice.running}"
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
        return "it broke off" if encrypted else "it broke off, or does not speak HTTP; does it use TLS? then use https"
    return f"the request failed ({type(error).__name__})"


def _causes(error: BaseException) -> list[BaseException]:
    """The error and those behind it, also the members of groups."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < MAX_CAUSES:
        cause = waiting.pop()
        if cause is not None and cause not in found:
            found.append(cause)
            waiting += [cause.__context__, cause.__cause__]
            waiting += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
    return found


def _say_refused(status: int, detail: str, advice: Advice) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return f"it asks for a password; {advice.password}"
    if 300 <= status < 400:
        return f"it redirects to another address ({status}), which is not followed; use that address instead"
    if status == HTTPStatus.MISDIRECTED_REQUEST:
        return "it does not serve this host name (421); use the name that it serves"
    return f"it refuses with {status}: {detail}" if detail else f"it refuses with {status}"


def _detail(media_type: str, body: bytes) -> str:
    """The detail of a problem document (RFC 9457) in plain characters, or an empty text."""
    if media_type != PROBLEM_TYPE:
        return ""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    detail = document.get("detail") if isinstance(document, dict) else None
    return escape_controls(detail[:MAX_REASON]) if isinstance(detail, str) else ""


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
    """Access to the nodes of a source; `tls` is used for targets with https.

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
    """Requests to the server at a base URL, for both kinds of transport."""

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
        """A request of which nothing waits longer than this many seconds."""
        if self._refused:
            raise DaemonError(UNVERIFIED, kind="refused")
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        extensions = {"timeout": httpx.Timeout(seconds).as_dict(), **self._server_name}
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
        """The error for an answer with a status that refuses the request; `body` may have a reason."""
        detail = _detail(_media_type(response.headers), body)
        return DaemonError(_say_refused(response.status_code, detail, self._access.advice), response.status_code)


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
        self, path: str = "", query: Query = (), *, max_bytes: int = MAX_BYTES, seconds: float = SECONDS
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

    async def post(self, path: str, content: bytes, *, seconds: float = SECONDS) -> PeerAnswer:
        """The answer to a POST request with JSON, which is sent once only.

        Raises:
            DaemonError: there is no answer (`status` 0), it is too long, or the server refuses.
        """
        request = self._request("POST", path, (), seconds, {"Content-Type": JSON_TYPE}, content)
        with self._counted(), self._explained(f"no answer within {seconds:g} s"):
            async with asyncio.timeout(seconds):
                return await self._exchange(request, MAX_BYTES)

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
        return PeerAnswer(dict(response.headers), body, sent_ns, received_ns)

    async def _read_refusal(self, response: httpx.Response) -> DaemonError:
        """The error for a refusal, without a detail if its body is too long or compressed."""
        try:
            body = await _read_body(response, MAX_REFUSAL_BYTES)
        except DaemonError:
            body = b""
        return self._refusal(response, body)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Keep the connections open for the block."""
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


def check_body(response: httpx.Response, body: bytearray, max_bytes: int) -> None:
    """Check the body of an answer as far as it was read.

    Raises:
        DaemonError: it is compressed, or too long.
    """
    if _is_compressed(response):
        raise DaemonError("its answer is compressed, which was not asked for", kind="bad-answer")
    if len(body) > max_bytes:
        # the same request would have the same answer
        too_long = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise DaemonError(f"its answer is longer than {max_bytes} bytes", too_long, "bad-answer")


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """The body."""
    body = bytearray()
    check_body(response, body, max_bytes)
    async for part in response.aiter_raw():
        body += part
        check_body(response, body, max_bytes)
    return bytes(body)


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


# names of headers are in lower case here
WINDOW_HEADER = NPY_HEADER.lower()
# as NumPy writes it; its own reader takes much more, and fails in many ways
_NPY_HEAD = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '<f4', 'fortran_order': False, 'shape': \(([0-9]{1,5}), ([0-9]{1,7})\), \} *\n",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class NodeArray:
    """A window as NPY: float32 (series, points), NaN for missing data, as `head` describes."""

    head: WindowHead
    values: Singles

    @property
    def start_ns(self) -> int:
        """The wall time of the first point."""
        return self.head.start_ms * MILLISECOND_NS

    @property
    def step_ns(self) -> int:
        """The time from one point to the next."""
        return self.head.resolution_ms * MILLISECOND_NS

    @property
    def newest_ns(self) -> int:
        """The wall time of the newest sample of the daemon."""
        return self.head.history.newest_ms * MILLISECOND_NS

    def both(self, port: str, what: str = "") -> Singles:
        """Transmit and receive rates of a port: float32 (2, points), NaN if the window does not have it.

        `what` names another value than the rate: `uncertainty`.
        """
        out = np.full((2, self.head.points), np.nan, dtype=np.float32)
        for way, direction in enumerate(DIRECTIONS):
            name = f"{port} {direction} {what}".rstrip()
            if name in self.head.series:
                out[way] = self.values[self.head.series.index(name)]
        return out

    def merged(self, port: str) -> Bools:
        """The samples of a port that were above the line rate, and merged: bool (2, points)."""
        out = np.zeros((2, self.head.points), dtype=np.bool_)
        ways = {f"{port} {direction}": way for way, direction in enumerate(DIRECTIONS)}
        for row, first, count in self.head.implausible.places:
            way = ways.get(self.head.series[row]) if row < len(self.head.series) else None
            if way is not None:
                out[way, first : first + count] = True
        return out

    def encode(self) -> tuple[bytes, str]:
        """The body, and the value of the header `X-Ibpulse-Window`."""
        # not orjson or pydantic, because headers are ASCII only
        return encode_npy(self.values), json.dumps(self.head.model_dump(), separators=(",", ":"))


def read_window(answer: PeerAnswer) -> WindowAnswer:
    """The checked window of an answer in JSON.

    Raises:
        DaemonError: it is not such an answer.
    """
    window = read_answer(WindowAnswer, answer)
    lengths = {len(values) for one in window.series for values in (one.values, one.uncertainty) if values is not None}
    uneven = any(
        len(values) != len(one.time_ms)
        for one in window.signals or ()
        for values in (one.seconds, *(each for row in one.series for each in (row.counters, row.gained, row.full)))
    )
    if uneven or lengths - {window.points}:
        raise unexpected("series of other lengths than points or times")
    return window


def read_array(answer: PeerAnswer) -> NodeArray:
    """The checked window of an answer in the format of NumPy.

    Raises:
        DaemonError: it is not such an answer.
    """
    if answer.media_type != NPY_TYPE or WINDOW_HEADER not in answer.headers:
        raise DaemonError(f"its answer is not an array; {NOT_OURS}", kind="bad-answer")
    head = read_members(WindowHead, answer.headers[WINDOW_HEADER])
    shape = (len(head.series), head.points)
    found = _NPY_HEAD.match(answer.body)
    if found is None or int.from_bytes(found[1], "little") != found.end() - found.end(1):
        raise DaemonError(f"its answer is not an array; {NOT_OURS}", kind="bad-answer")
    size = 4 * shape[0] * shape[1]
    if (int(found[2]), int(found[3])) != shape or len(answer.body) - found.end() != size:
        raise DaemonError(f"its answer is an array of another shape than it says; {NOT_OURS}", kind="bad-answer")
    values = np.frombuffer(answer.body, "<f4", offset=found.end()).reshape(shape).copy()
    missing = np.isnan(values)
    if np.isinf(values).any() or (values[~missing] < 0).any():
        raise DaemonError(f"its answer has rates that are negative or infinite; {NOT_OURS}", kind="bad-answer")
    # one of many bit patterns
    values[missing] = np.nan
    return NodeArray(head, values)
