"""One kept connection to a daemon: GET requests, and their failures as sentences. It must not read the answers."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlencode, urlsplit

import orjson

from ibpulse.errors import DaemonError

DEFAULT_PORT = 10055
TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Headers, by their names in lower case, and body of an answer with status 200."""

    headers: Mapping[str, str]
    body: bytes


class Connection:
    """Asks the daemon at a URL such as `http://node7:10055`; a name and password stand before the host with an @.

    The port is 10055 unless it is given. Not for several threads at once.
    """

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Take the URL apart; nothing is sent yet.

        Raises:
            DaemonError: it is no such URL.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or DEFAULT_PORT
        except ValueError as error:
            raise DaemonError(_refuse(url)) from error
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise DaemonError(_refuse(url))
        self.place = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self._base = parts.path.rstrip("/")
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "ibpulse"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._answered = False
        self._http: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._http = http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=context)
        else:
            self._http = http.client.HTTPConnection(host, port, timeout=timeout_seconds)

    def get(self, path: str, query: Sequence[tuple[str, str | int]] = ()) -> Answer:
        """The answer to a GET.

        Raises:
            DaemonError: nobody answers (`status` 0), or the daemon refuses, with its own reason.
        """
        target = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        fresh = self._http.sock is None
        try:
            return self._get(target)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if fresh:
                raise self._silent(error) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._silent(error) from error
        try:
            # a server may close a kept connection at any time
            return self._get(target)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._silent(error) from error

    def close(self) -> None:
        """Let go of the connection; the next request makes a new one."""
        self._http.close()

    def _get(self, target: str) -> Answer:
        self._http.request("GET", target, headers=self._headers)
        response = self._http.getresponse()
        body = response.read(MAX_ANSWER_BYTES + 1)
        self._answered = True
        if len(body) > MAX_ANSWER_BYTES:
            self.close()
            raise DaemonError(f"{self.place}{target} answers more than {MAX_ANSWER_BYTES} bytes; ask for less", 413)
        if response.status != http.client.OK:
            reason = _reason(body) or response.reason
            if response.status == http.client.UNAUTHORIZED:
                way = self.place.replace("://", "://NAME:PASSWORD@")
                reason = f"{reason.rstrip('.')}; write them into the address, like {way}"
            raise DaemonError(f"{self.place}{target} answers {response.status}: {reason}", response.status)
        return Answer({name.lower(): value for name, value in response.getheaders()}, body)

    def _silent(self, error: Exception) -> DaemonError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        advice = "is `ibpulse serve` running there?"
        if isinstance(error, TimeoutError):
            reason = f"no answer in {self._http.timeout:g} s"
        elif isinstance(error, socket.gaierror):
            reason = "no such host"
        elif isinstance(error, ssl.SSLCertVerificationError):
            reason = f"its certificate is not trusted ({error.verify_message})"
            advice = "name the file of its authority in the environment variable SSL_CERT_FILE"
        elif isinstance(error, ssl.SSLError):
            advice = "is TLS spoken there? else write http://"
        elif isinstance(error, ConnectionResetError) and self.place.startswith("http://") and not self._answered:
            advice = "is TLS spoken there? then write https://"
        return DaemonError(f"{self.place} does not answer: {reason}; {advice}")


def _refuse(url: str) -> str:
    return f"{url!r} is not the address of a daemon; write it like http://node7:{DEFAULT_PORT}"


def _reason(body: bytes) -> str:
    """The detail of a problem document (RFC 9457), or nothing."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    return str(document.get("detail", ""))[:500] if isinstance(document, dict) else ""
