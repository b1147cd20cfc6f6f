"""The only HTTP client: asks daemons, gateways and lists of nodes over httpx, which only the other modules load.

transport   bounded requests to one server, for an event loop, and the check of answers
connection  the same without one: requests to one daemon or gateway
"""

from __future__ import annotations

import base64
import socket
import sys
import time
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from ibpulse.base.errors import DaemonError
from ibpulse.core.defaults import DEFAULT_PORT

TIMEOUT_SECONDS = 5.0
# a daemon listens some seconds after its start
MAX_WAIT_SECONDS = 15.0
RETRY_SECONDS = 0.25


class DaemonAddress:
    """A URL such as `http://node7:10055` or `https://user:password@node7`.

    The scheme defaults to http, the port to 10055. `place` is the URL without password and path, `url` has the path.
    """

    def __init__(self, url: str) -> None:
        """Parse the URL."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port or DEFAULT_PORT
        except ValueError as error:
            raise DaemonError(_refuse(url)) from error
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise DaemonError(_refuse(url))
        self._socket = host, port
        self.encrypted = parts.scheme == "https"
        self.place = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self.url = f"{self.place}{parts.path.rstrip('/')}"
        self.authorization = ""
        """The value of that header, or empty."""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self.authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def refuses(self) -> bool:
        """Whether nothing listens at the address; a request reports any other failure."""
        try:
            socket.create_connection(self._socket, TIMEOUT_SECONDS).close()
        except OSError as error:
            return isinstance(error, ConnectionRefusedError)
        return False


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
    address = DaemonAddress(url)
    deadline, waiting = clock() + MAX_WAIT_SECONDS, False
    while address.refuses() and clock() < deadline:
        if not waiting:
            say(f"waiting up to {MAX_WAIT_SECONDS:g} s for {address.place}, which refuses connections")
        waiting = True
        sleep(RETRY_SECONDS)


def _refuse(url: str) -> str:
    return f"{url!r} is not the address of a daemon; write it like http://node7:{DEFAULT_PORT}"


if "httpx" not in sys.modules:
    # httpx would load its own command line, and click, rich and pygments with it: a third of the time of its import
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
