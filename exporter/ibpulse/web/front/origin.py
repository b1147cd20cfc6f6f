"""Which writes may come from a browser: those of this server's own pages. It must not know who asks.

A browser adds a user's password or certificate to whatever any page makes it send. So a write that a browser says comes
from elsewhere is refused. Programs send neither header and pass.
"""

from __future__ import annotations

from collections.abc import Iterable

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWN_SITES = (b"same-origin", b"none")


def is_foreign_write(method: str, scheme: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser sent this write for another site (Fetch Metadata, W3C; Origin, RFC 6454)."""
    if method in SAFE_METHODS:
        return False
    given = dict(headers)
    site, origin = given.get(b"sec-fetch-site"), given.get(b"origin")
    if site is not None:
        return site not in OWN_SITES
    return origin is not None and origin.lower() != f"{scheme}://".encode() + given.get(b"host", b"").lower()
