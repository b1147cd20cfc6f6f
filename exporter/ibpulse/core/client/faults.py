"""Why a server does not answer, refuses, or answers something else, as sentences."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from http import HTTPStatus

import httpx
import orjson

from ibpulse.base.errors import DaemonError
from ibpulse.base.text import escape_controls

MAX_REASON = 300
MAX_CAUSES = 20
PROBLEM_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Advice:
    """Ends of sentences about a missing password and an unknown certificate: where a person gives them."""

    password: str = "is the one in the node configuration file of its source right?"
    authority: str = "give its authority as ca_file, or server_name"


def silence(error: Exception, advice: Advice, *, encrypted: bool) -> DaemonError:
    """The error for a request without an answer; `encrypted` is whether it was sent with TLS."""
    causes = _causes(error)
    refused = any(isinstance(cause, ssl.SSLError) for cause in causes)
    return DaemonError(
        _say_silent(error, causes, advice, encrypted=encrypted), kind="refused" if refused else "no-answer"
    )


def refusal(status: int, media_type: str, body: bytes, advice: Advice) -> DaemonError:
    """The error for an answer with a status that refuses the request; `body` may have a reason."""
    return DaemonError(_say_refused(status, _detail(media_type, body), advice), status)


def _say_silent(error: Exception, causes: list[BaseException], advice: Advice, *, encrypted: bool) -> str:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = escape_controls(cause.verify_message)[:MAX_REASON]
            return f"its certificate is not trusted ({reason}); {advice.authority}"
        if isinstance(cause, ssl.SSLError):
            reason = escape_controls(cause.reason or "failed").replace("_", " ").lower()[:MAX_REASON]
            return f"TLS failed ({reason}); does it want a certificate of ours, or does it not use TLS? then use http"
        if isinstance(cause, socket.gaierror):
            return "its host name cannot be resolved"
        if isinstance(cause, ConnectionRefusedError):
            return "it refuses connections; is `ibpulse serve` running there?"
    if isinstance(error, httpx.ConnectError):
        return "it cannot be reached; is the network up, and is `ibpulse serve` running there?"
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
