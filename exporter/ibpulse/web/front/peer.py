"""The names in a client's certificate that OpenSSL has verified. It must not verify by itself."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

NAME_KINDS = ("DNS", "email", "IP Address", "URI")


def find_name(peer: ssl.SSLObject | None) -> str | None:
    """Whose certificate it is: the subject's common name, else the first alternative name; None without one."""
    certificate = _certificate(peer)
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return next(iter([*common, *_alternative_names(certificate)]), None)


def has_allowed_name(peer: ssl.SSLObject | None, allowed: frozenset[str]) -> bool:
    """Whether one of the certificate's alternative names is allowed; nobody is kept out when none are listed."""
    return not allowed or not allowed.isdisjoint(_alternative_names(_certificate(peer)))


def _certificate(peer: ssl.SSLObject | None) -> dict[str, Any]:
    return dict((peer.getpeercert() if peer else None) or {})


def _alternative_names(certificate: dict[str, Any]) -> Iterator[str]:
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "IP Address":
            # OpenSSL writes 0:0:0:0:0:0:0:1 where people write ::1, and words where it is no address
            with suppress(ValueError):
                yield str(ipaddress.ip_address(value.strip()))
        elif kind in NAME_KINDS:
            yield value
