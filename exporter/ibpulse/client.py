"""HTTP client for a running daemon, with validated answers."""

from __future__ import annotations

import base64
import http.client
import io
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import numpy as np
import numpy.typing as npt
import orjson

from ibpulse.answers.events import MAX_EVENTS, EventsAnswer
from ibpulse.answers.members import NOT_OURS, Part, read_members
from ibpulse.answers.ports import PortsAnswer
from ibpulse.errors import DaemonError
from ibpulse.model import DIRECTIONS
from ibpulse.text import first_names
from ibpulse.units import MILLISECOND_NS

DEFAULT_PORT = 10055
TIMEOUT_SECONDS = 5.0
MAX_ANSWER_BYTES = 64_000_000
MAX_NAMED = 8
# a daemon listens some seconds after its start
MAX_WAIT_SECONDS = 15.0
RETRY_SECONDS = 0.25
WINDOW_HEADER = "x-ibpulse-window"


@dataclass(frozen=True, slots=True)
class Answer:
    """Headers (names in lower case) and body of an answer with status 200 or 202."""

    headers: Mapping[str, str]
    body: bytes


class DaemonConnection:
    """A connection to the daemon at a URL such as `http://node7:10055` or `https://user:password@node7`.

    The scheme defaults to http, the port to 10055. Not thread-safe.
    """

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        """Parse the URL; nothing is sent yet.

        Raises:
            DaemonError: the URL is invalid.
        """
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
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

    @property
    def address(self) -> str:
        """The URL without a password."""
        return f"{self.place}{self._base}"

    def get(self, path: str, query: Sequence[tuple[str, str | int]] = ()) -> Answer:
        """Send a GET request and return the answer.

        Raises:
            DaemonError: there is no answer (`status` 0), or the daemon refuses the request, with its own reason.
        """
        target = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        fresh = self._http.sock is None
        try:
            return self._ask("GET", target)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if fresh:
                raise self._silent(error) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._silent(error) from error
        try:
            # a server may close a keep-alive connection at any time
            return self._ask("GET", target)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._silent(error) from error

    def post(self, path: str, document: Mapping[str, Any]) -> Answer:
        """Send a POST request with a JSON document, once, and return the answer.

        Raises:
            DaemonError: as `get`.
        """
        # a new connection, because a request that is not repeated must not meet one that the server has closed
        self.close()
        try:
            return self._ask("POST", f"{self._base}{path}", orjson.dumps(document))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._silent(error) from error

    def refuses(self) -> bool:
        """Whether nothing listens at the address; the next request reports any other failure."""
        try:
            self._http.connect()
        except ConnectionRefusedError:
            return True
        except OSError:
            self.close()
        return False

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._http.close()

    def _ask(self, method: str, target: str, body: bytes | None = None) -> Answer:
        self._http.request(method, target, body, headers=self._headers)
        response = self._http.getresponse()
        body = response.read(MAX_ANSWER_BYTES + 1)
        self._answered = True
        if len(body) > MAX_ANSWER_BYTES:
            self.close()
            raise DaemonError(f"{self.place}{target} sent more than {MAX_ANSWER_BYTES} bytes; request less data", 413)
        if response.status not in (http.client.OK, http.client.ACCEPTED):
            reason = _reason(body) or response.reason
            if response.status == http.client.UNAUTHORIZED:
                way = self.place.replace("://", "://NAME:PASSWORD@")
                reason = f"{reason.rstrip('.')}; pass the user name and password in the URL, such as {way}"
            raise DaemonError(f"{self.place}{target} responded with {response.status}: {reason}", response.status)
        return Answer({name.lower(): value for name, value in response.getheaders()}, body)

    def _silent(self, error: Exception) -> DaemonError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        advice = "is `ibpulse serve` running there?"
        if isinstance(error, TimeoutError):
            reason = f"no response within {self._http.timeout:g} s"
        elif isinstance(error, socket.gaierror):
            reason = "no such host"
        elif isinstance(error, ssl.SSLCertVerificationError):
            reason = f"its certificate is not trusted ({error.verify_message})"
            advice = "name the file of its authority in the environment variable SSL_CERT_FILE"
        elif isinstance(error, ssl.SSLError):
            advice = "does the server use TLS? if not, use http://"
        elif isinstance(error, ConnectionResetError) and self.place.startswith("http://") and not self._answered:
            advice = "does the server use TLS? if so, use https://"
        return DaemonError(f"{self.place} does not answer: {reason}; {advice}")


def wait_for_daemon(
    url: str,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for an address that refuses connections, up to 15 s, and say so once; a later request reports its failure.

    Raises:
        DaemonError: the URL is invalid.
    """
    connection = DaemonConnection(url)
    deadline, waiting = clock() + MAX_WAIT_SECONDS, False
    while connection.refuses() and clock() < deadline:
        if not waiting:
            say(f"waiting up to {MAX_WAIT_SECONDS:g} s for {connection.place}, which refuses connections")
        waiting = True
        sleep(RETRY_SECONDS)
    connection.close()


def _refuse(url: str) -> str:
    return f"{url!r} is not the address of a daemon; write it like http://node7:{DEFAULT_PORT}"


def _reason(body: bytes) -> str:
    """The detail of a problem document (RFC 9457), or an empty string."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    return str(document.get("detail", ""))[:500] if isinstance(document, dict) else ""


@dataclass(frozen=True, slots=True)
class RemoteWindow:
    """Rates on a regular grid that begins at `start_ns` with steps of `step_ns`; NaN for missing data.

    `values` is float32 (series, points); `series` holds the names, such as `mlx5_0:1 transmit`. `newest_ns` is the time
    of the daemon's newest sample. `merged` are series, first point and number of points of samples above the line rate,
    which were merged.
    """

    interval_ns: int
    step_ns: int
    start_ns: int
    newest_ns: int
    series: tuple[str, ...]
    values: npt.NDArray[np.float32]
    merged: tuple[tuple[int, int, int], ...] = ()

    def both(self, port: str, what: str = "") -> npt.NDArray[np.float32]:
        """Transmit and receive rates of a port: float32 (2, points), NaN if the daemon does not have the port.

        `what` names another value than the rate: `uncertainty`.
        """
        out = np.full((2, self.values.shape[1]), np.nan, dtype=np.float32)
        for way, direction in enumerate(DIRECTIONS):
            name = f"{port} {direction} {what}".rstrip()
            if name in self.series:
                out[way] = self.values[self.series.index(name)]
        return out

    def marks(self, port: str) -> npt.NDArray[np.bool_]:
        """The merged samples of a port: bool (2, points)."""
        out = np.zeros((2, self.values.shape[1]), dtype=np.bool_)
        rows = {self.series.index(name): way for way, name in self._names(port)}
        for row, first, count in self.merged:
            if row in rows:
                out[rows[row], first : first + count] = True
        return out

    def _names(self, port: str) -> list[tuple[int, str]]:
        names = [(way, f"{port} {direction}") for way, direction in enumerate(DIRECTIONS)]
        return [(way, name) for way, name in names if name in self.series]


def ask_ports(connection: DaemonConnection) -> PortsAnswer:
    """The ports of the node.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    try:
        body = connection.get("/api/v1/ports").body
    except DaemonError as error:
        nodes = _gateway_nodes(connection) if error.status == http.client.NOT_FOUND else None
        if nodes is None:
            raise
        raise DaemonError(_say_gateway(connection.address, nodes), error.status) from error
    return read_body(connection, PortsAnswer, body)


def read_body(connection: DaemonConnection, model: type[Part], body: bytes) -> Part:
    """The checked answer of a connection.

    Raises:
        DaemonError: it is not one of an ibpulse daemon.
    """
    with reading(connection):
        return read_members(model, body)


def _gateway_nodes(connection: DaemonConnection) -> list[str] | None:
    """The names of the nodes of a gateway; None if it is none."""
    try:
        return [str(node["node"]) for node in orjson.loads(connection.get("/api/v1/nodes").body)["nodes"]]
    except (DaemonError, ValueError, TypeError, KeyError):
        return None


def _say_gateway(address: str, nodes: Sequence[str]) -> str:
    """How to reach a node or a job of a gateway."""
    if not nodes:
        return f"{address} is a gateway, not a daemon, and it knows no node yet"
    return (
        f"{address} is a gateway, not a daemon; for a node use {address}/node/{nodes[0]} "
        f"(it has {first_names(nodes, MAX_NAMED)}), for a job `ibpulse fleet collect --url={address} --job=ID`"
    )


def ask_window(connection: DaemonConnection, query: Sequence[tuple[str, str | int]]) -> RemoteWindow:
    """The window for a query with the parameters of `/api/v1/window`.

    Raises:
        DaemonError: there is no answer, the query is refused, or the answer is not one of an ibpulse daemon.
    """
    answer = connection.get("/api/v1/window", [*query, ("format", "npy")])
    with reading(connection):
        about = orjson.loads(answer.headers[WINDOW_HEADER])
        values = np.load(io.BytesIO(answer.body), allow_pickle=False)
        if values.dtype != np.float32 or values.shape != (len(about["series"]), about["points"]):
            raise ValueError(f"{values.dtype} values of shape {values.shape}")
        return RemoteWindow(
            interval_ns=about["interval_ms"] * MILLISECOND_NS,
            step_ns=about["resolution_ms"] * MILLISECOND_NS,
            start_ns=about["start_ms"] * MILLISECOND_NS,
            newest_ns=about["history"]["newest_ms"] * MILLISECOND_NS,
            series=tuple(map(str, about["series"])),
            merged=tuple((int(row), int(first), int(count)) for row, first, count in about["implausible"]["places"]),
            values=values,
        )


def ask_events(
    connection: DaemonConnection, from_ns: int | None = None, to_ns: int | None = None, kinds: Sequence[str] = ()
) -> EventsAnswer:
    """The events noticed between two wall times, widened to milliseconds.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    query: list[tuple[str, str | int]] = [("limit", MAX_EVENTS), *(("kind", kind) for kind in kinds)]
    if from_ns is not None:
        query.append(("from", from_ns // MILLISECOND_NS))
    if to_ns is not None:
        query.append(("to", -(-to_ns // MILLISECOND_NS)))
    return read_body(connection, EventsAnswer, connection.get("/api/v1/events", query).body)


def ask_metrics(connection: DaemonConnection, names: Sequence[str]) -> dict[str, float]:
    """Sums over all labels of those of these metrics that the daemon exports, by name.

    Raises:
        DaemonError: there is no answer, or it is not one of an ibpulse daemon.
    """
    text = connection.get("/metrics", [("name[]", name) for name in names]).body.decode(errors="replace")
    found: dict[str, float] = {}
    with reading(connection):
        for line in text.splitlines():
            if line and not line.startswith("#"):
                sample, _, number = line.rpartition(" ")
                name, value = sample.partition("{")[0], float(number)
                if name in names and math.isfinite(value):
                    found[name] = found.get(name, 0.0) + value
    return found


@contextmanager
def reading(connection: DaemonConnection) -> Iterator[None]:
    """Convert errors while parsing an answer to a `DaemonError` that names the daemon."""
    try:
        yield
    except DaemonError as error:
        raise DaemonError(f"{connection.place}: {error}", kind=error.kind) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DaemonError(
            f"{connection.place} sent an unexpected response ({type(error).__name__}: {str(error)[:200]}); {NOT_OURS}"
        ) from error
