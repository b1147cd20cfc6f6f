"""Parses the values of the web configuration file, and maps Go's names to OpenSSL's."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Annotated

from ibpulse.units import parse_duration
from ibpulse.yaml_sections import mapped, several, single

TLS_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
OLD_TLS_VERSIONS = ("TLS10", "TLS11")

TLS13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Always offered with TLS 1.3, as in Go; listing them has no effect."""

TLS12_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""Go's suites with forward secrecy for TLS 1.2 and their names in OpenSSL."""

CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}

CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
UNVERIFIED_CLIENT_AUTH = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
"""Policies that accept unverified certificates; Python's TLS has no such mode."""

HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""Headers that the file may set, and their allowed values; an empty list allows any."""


MAX_COST = 15
"""Maximum cost of a bcrypt hash: a check takes about 2 s, and each step doubles it."""
MAX_BURST = 1_000_000

# the salt has 128 bits in 22 characters, so the last one has only four values
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")


def _tls_version(text: str) -> str:
    if text in OLD_TLS_VERSIONS:
        raise ValueError(f"{text!r} is insecure and not supported; choose TLS12 or TLS13")
    if text not in TLS_VERSIONS:
        raise ValueError(f"unknown value {text!r}; choose TLS12 or TLS13")
    return text


def _client_auth(text: str) -> str:
    if text in UNVERIFIED_CLIENT_AUTH:
        raise ValueError(
            f"{text!r} accepts unverified certificates and is not supported; "
            "choose VerifyClientCertIfGiven or RequireAndVerifyClientCert"
        )
    if text not in CLIENT_AUTH:
        raise ValueError(f"unknown value {text!r}; choose from {', '.join(CLIENT_AUTH)}")
    return text


def _cipher(text: str) -> str:
    if text not in TLS12_CIPHERS and text not in TLS13_CIPHERS:
        raise ValueError(f"{text!r} is not supported; choose from those in docs/security.md, or remove the list")
    return text


def _curve(text: str) -> str:
    if text not in CURVES:
        raise ValueError(f"{text!r} is not supported; choose from {', '.join(CURVES)}")
    return text


def _interval(text: str) -> int:
    return 0 if text == "0" else parse_duration(text)


def _burst(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) > MAX_BURST:
        raise ValueError(f"{text!r} is not a number of requests; write one from 0 to {MAX_BURST}")
    return int(text)


def _header_fault(name: str, text: str) -> str:
    if name not in HEADERS:
        return f"cannot be set here; choose from {', '.join(HEADERS)}"
    values = HEADERS[name]
    if values and text not in values:
        return f"{text!r} is not allowed; choose {' or '.join(values)}"
    return "" if text.isprintable() and text.isascii() else f"{text!r} has characters that are not allowed in headers"


def _user_fault(name: str, text: str) -> str:
    if not name or ":" in name or not name.isprintable():
        return "browsers cannot send this name; use printable characters except colons"
    match = _BCRYPT.fullmatch(text)
    if not match:
        return f"is not a bcrypt hash; create one with `htpasswd -nBC 10 {name}`"
    if not 4 <= int(match[1]) <= MAX_COST:
        return f"has cost {int(match[1])}; use 4 to {MAX_COST}, as in `htpasswd -nBC 10 {name}`"
    return ""


TlsVersion = Annotated[str, single(_tls_version)]
ClientAuth = Annotated[str, single(_client_auth)]
Ciphers = Annotated[tuple[str, ...], several(_cipher)]
Curves = Annotated[tuple[str, ...], several(_curve)]
IntervalNs = Annotated[int, single(_interval)]
Burst = Annotated[int, single(_burst)]
Headers = Annotated[Mapping[str, str], mapped(_header_fault)]
Users = Annotated[Mapping[str, str], mapped(_user_fault)]
