"""Bounded requests to one server: no redirects, no proxies, no cookies, no compression; failures are sentences."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic_ns
from urllib.parse import urlencode, urlsplit

import httpx
import orjson

from ibpulse.errors import DaemonError
from ibpulse.fleet.node_config import NodeAccess
from ibpulse.text import escape_controls

SECONDS = 1.0
# a stream has a summary each second
SILENCE_SECONDS = 6.0
MAX_BYTES = 4_000_000
MAX_REASON = 300
MAX_REFUSAL_BYTES = 10_000
# requests of several viewers at a time; a node serves 32 of one address
MAX_CONNECTIONS = 8
KEPT_SECONDS = 30.0
JSON_TYPE, PROBLEM_TYPE = "application/json", "application/problem+json"


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """The answer with status 200: headers (names in lower case), body, and the monotonic times around the exchange.

    `received_ns` is the time when its head was there.
    """

    headers: Mapping[str, str]
    body: bytes
    sent_ns: int
    received_ns: int

    @property
    def media_type(self) -> str:
        """The type of the body without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class HttpPeer:
    """One server at a base URL, with its connections and the access to it. For one event loop."""

    def __init__(self, url: str, access: NodeAccess) -> None:
        self.url = url
        self._closed = False
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "ibpulse"}
        if access.authorization:
            self._headers["Authorization"] = access.authorization
        self._server_name = {"sni_hostname": access.server_name} if access.server_name else {}
        limits = httpx.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=2, keepalive_expiry=KEPT_SECONDS
        )
        # a client would keep cookies, and read the environment for proxies and passwords
        self._transport = httpx.AsyncHTTPTransport(verify=access.tls, limits=limits, trust_env=False, retries=0)

    async def post(
        self, path: str, content: bytes, *, max_bytes: int = MAX_BYTES, seconds: float = SECONDS
    ) -> PeerAnswer:
        """The answer to a POST request with JSON, which is sent once only; `status` of the error is that of a refusal.

        Raises:
            DaemonError: there is no answer (`status` 0), it is too long, or the server refuses.
        """
        if self._closed:
            raise DaemonError("it is no longer listed at this address")
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        headers = {**self._headers, "Content-Type": JSON_TYPE}
        request = httpx.Request(
            "POST",
            f"{self.url}{path}",
            headers=headers,
            content=content,
            extensions={"timeout": timeouts, **self._server_name},
        )
        sent_ns = monotonic_ns()
        try:
            async with asyncio.timeout(seconds):
                response = await self._transport.handle_async_request(request)
                received_ns, body = monotonic_ns(), bytearray()
                try:
                    async for part in response.aiter_raw():
                        body += part
                        if len(body) > max_bytes:
                            raise DaemonError(f"its answer is longer than {max_bytes} bytes", 413)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException) as error:
            raise DaemonError(f"no answer within {seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise DaemonError(self._say_silent(error)) from error
        found = {name.lower(): text for name, text in response.headers.items()}
        answer = PeerAnswer(found, bytes(body), sent_ns, received_ns)
        if response.status_code not in (HTTPStatus.OK, HTTPStatus.ACCEPTED):
            raise DaemonError(_say_refused(response.status_code, answer), response.status_code)
        return answer

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
        if self._closed:
            # nothing would close the connections of a request that began now
            raise DaemonError("it is no longer listed at this address")
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            async with asyncio.timeout(seconds):
                try:
                    return await self._exchange(url, max_bytes, seconds)
                except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    # a server may close a kept connection at any time
                    return await self._exchange(url, max_bytes, seconds)
        except TimeoutError as error:
            raise DaemonError(f"no answer within {seconds:g} s") from error
        except httpx.TimeoutException as error:
            raise DaemonError(f"no answer within {seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._silence(error) from error

    async def stream(
        self, path: str, query: Sequence[tuple[str, str]], media_type: str, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The parts of an answer without an end, which begins in time and is never silent for `SILENCE_SECONDS`.

        Raises:
            DaemonError: it does not begin in time, breaks off, is of another media type, or the server refuses.
        """
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        request = self._request(url, SILENCE_SECONDS, headers)
        response = None
        try:
            async with asyncio.timeout(SECONDS):
                response = await self._transport.handle_async_request(request)
                found = {name.lower(): text for name, text in response.headers.items()}
                if response.status_code != HTTPStatus.OK:
                    answer = PeerAnswer(found, await _read_body(response, MAX_REFUSAL_BYTES), 0, 0)
                    raise DaemonError(_say_refused(response.status_code, answer), response.status_code)
                if PeerAnswer(found, b"", 0, 0).media_type != media_type or "content-encoding" in found:
                    raise DaemonError(f"its answer is not a stream of {media_type}", kind="bad-answer")
            async for part in response.aiter_raw():
                yield part
        except (TimeoutError, httpx.TimeoutException) as error:
            began = f"no answer within {SECONDS:g} s"
            raise DaemonError(began if response is None else f"silent for {SILENCE_SECONDS:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise self._silence(error) from error
        finally:
            if response is not None:
                await response.aclose()

    def _request(self, url: str, seconds: float, headers: Mapping[str, str] | None = None) -> httpx.Request:
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        extensions = {"timeout": timeouts, **self._server_name}
        return httpx.Request("GET", url, headers={**self._headers, **(headers or {})}, extensions=extensions)

    async def close(self) -> None:
        """Close the connections; later requests are refused."""
        self._closed = True
        await self._transport.aclose()

    async def _exchange(self, url: str, max_bytes: int, seconds: float) -> PeerAnswer:
        request = self._request(url, seconds)
        sent_ns = monotonic_ns()
        response = await self._transport.handle_async_request(request)
        received_ns = monotonic_ns()
        try:
            body = await _read_body(response, max_bytes)
        finally:
            await response.aclose()
        headers = {name.lower(): text for name, text in response.headers.items()}
        answer = PeerAnswer(headers, body, sent_ns, received_ns)
        if response.status_code != HTTPStatus.OK:
            raise DaemonError(_say_refused(response.status_code, answer), response.status_code)
        return answer

    def _silence(self, error: Exception) -> DaemonError:
        encrypted = any(isinstance(cause, ssl.SSLError) for cause in _causes(error))
        return DaemonError(self._say_silent(error), kind="refused" if encrypted else "no-answer")

    def _say_silent(self, error: Exception) -> str:
        """Why there is no answer, and what to do."""
        encrypted = urlsplit(self.url).scheme == "https"
        for cause in _causes(error):
            if isinstance(cause, ssl.SSLCertVerificationError):
                reason = escape_controls(cause.verify_message)[:MAX_REASON]
                return f"its certificate is not trusted ({reason}); give its authority as ca_file, or server_name"
            if isinstance(cause, ssl.SSLError):
                reason = escape_controls(cause.reason or "failed").replace("_", " ").lower()[:MAX_REASON]
                return f"TLS failed ({reason}); does it use TLS, and does it want a certificate of ours?"
            if isinstance(cause, socket.gaierror):
                return "its host name cannot be resolved"
            if isinstance(cause, ConnectionRefusedError):
                return "it refuses connections; is `ibpulse serve` running there?"
        if isinstance(error, httpx.ConnectError):
            return "it cannot be reached; is the network up, and is `ibpulse serve` running there?"
        if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
            return (
                "it broke off" if encrypted else "it broke off, or does not speak HTTP; does it use TLS? then use https"
            )
        return f"the request failed ({type(error).__name__})"


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """The body.

    Raises:
        DaemonError: it is too long, or compressed.
    """
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise DaemonError("its answer is compressed, which was not asked for", kind="bad-answer")
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > max_bytes:
            raise DaemonError(f"its answer is longer than {max_bytes} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return bytes(body)


def _causes(error: BaseException) -> list[BaseException]:
    """The error and those behind it, also the members of groups; at most 20."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < 20:
        cause = waiting.pop()
        if cause is not None and cause not in found:
            found.append(cause)
            waiting += [cause.__context__, cause.__cause__]
            waiting += cause.exceptions if isinstance(cause, BaseExceptionGroup) else ()
    return found


def _say_refused(status: int, answer: PeerAnswer) -> str:
    if status == HTTPStatus.UNAUTHORIZED:
        return "it asks for a password; is the one in the node configuration file of its source right?"
    if 300 <= status < 400:
        return f"it redirects to another address ({status}), which is not followed; list that address instead"
    if status == HTTPStatus.MISDIRECTED_REQUEST:
        return "it does not serve this host name (421); list the name that it serves"
    detail = _detail(answer)
    return f"it refuses with {status}: {detail}" if detail else f"it refuses with {status}"


def _detail(answer: PeerAnswer) -> str:
    """The detail of a problem document (RFC 9457) in plain characters, or an empty text."""
    if answer.media_type != PROBLEM_TYPE:
        return ""
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return ""
    detail = document.get("detail") if isinstance(document, dict) else None
    return escape_controls(detail[:MAX_REASON]) if isinstance(detail, str) else ""
