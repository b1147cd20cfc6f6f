"""The host names that requests may ask for: a page whose name was rebound to this node asks for its own."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence

from starlette.responses import Response

from ibpulse.core.http.problems import KINDS, problem_response

LOCAL = "localhost"
ANY = "*"
SHOWN = 100
_HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::[0-9]*)?")


class HostCheck:
    """The check of the header Host (RFC 9110, 7.2).

    A server that listens on a loopback address serves loopback names and addresses, and `hosts`. Any other server
    serves every name, or with `hosts` only these, loopback names and addresses: no attacker can rebind an address.
    `hosts` with `*` serves every name.
    """

    def __init__(self, listen_host: str = "", hosts: Sequence[str] = ()) -> None:
        """Resolve `listen_host`, the name or address to listen on; empty for every address of the node."""
        self._local = _is_local(listen_host)
        self._names = {LOCAL, _plain(listen_host), *map(_plain, hosts)} - {""}
        self._open = ANY in hosts or not (hosts or self._local)

    def find_refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> Response | None:
        """The refusal of a request to another host; None without the header, because browsers always send it."""
        if self._open:
            return None
        asked = (value.decode("latin-1") for name, value in headers if name == b"host")
        wrong = next((host for host in asked if not self._serves(host)), None)
        if wrong is None:
            return None
        detail = (
            f"The request is for the host {wrong[:SHOWN]!r}, which is not served here. Use localhost or the address of "
            "this server, or add the name to web.hosts."
        )
        return problem_response(421, detail, KINDS["wrong-host"], "wrong-host")

    def _serves(self, host: str) -> bool:
        match = _HOST.fullmatch(host.strip())
        if match is None:
            return False
        name = _plain(match[1] or match[2] or "")
        address = _parse(name)
        return name in self._names or (address is not None and (address.is_loopback or not self._local))


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_local(host: str) -> bool:
    """Whether a server that listens on that host can be reached from this node only."""
    if not host:
        return False
    try:
        *_, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        # listening fails as well, and says why
        return False
    address = _parse(str(place[0]))
    return address is not None and address.is_loopback
