"""The kinds of the values of the web configuration file, and the names of Go and OpenSSL."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterable, Mapping

from ibpulse.base.values import EntriesError, Kind, choice, many, one, unknown_word, whole
from ibpulse.units import parse_duration

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


def _word(metavar: str, allowed: Iterable[str], unsupported: Iterable[str], reason: str) -> Kind[str]:
    """One of the allowed words; some others are refused with a reason of their own."""

    def parse(text: str) -> str:
        if text in unsupported:
            raise ValueError(f"{text!r} {reason}")
        if text not in allowed:
            raise ValueError(unknown_word(text, allowed))
        return text

    return one(metavar, parse)


def _mapped(check: Callable[[str, str], str]) -> Kind[Mapping[str, str]]:
    """A mapping of texts; `check` returns the error of one entry, or an empty text."""

    def parse(given: Mapping[str, str]) -> Mapping[str, str]:
        if not all(isinstance(text, str) for text in given.values()):
            raise ValueError("is not a mapping of names to texts; write it like name: text")
        if faults := [(name, fault) for name, text in given.items() if (fault := check(name, text))]:
            raise EntriesError(faults)
        return given

    return Kind("NAME: TEXT", parse, mapping=True)


def _cipher(text: str) -> str:
    if text not in TLS12_CIPHERS and text not in TLS13_CIPHERS:
        raise ValueError(f"{text!r} is not supported; choose from those in docs/security.md, or remove the list")
    return text


def _interval(text: str) -> int:
    return 0 if text == "0" else parse_duration(text)


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


TLS_VERSION = _word("VERSION", TLS_VERSIONS, OLD_TLS_VERSIONS, "is insecure and not supported; choose TLS12 or TLS13")
CLIENT_AUTH_TYPE = _word(
    "POLICY",
    CLIENT_AUTH,
    UNVERIFIED_CLIENT_AUTH,
    "accepts unverified certificates and is not supported; "
    "choose VerifyClientCertIfGiven or RequireAndVerifyClientCert",
)
CIPHER_LIST = many(one("SUITE", _cipher), split=False)
CURVE_LIST = many(choice(*CURVES), split=False)
INTERVAL = one("DURATION", _interval)
BURST = whole(0, MAX_BURST)
HEADER_TEXTS = _mapped(_header_fault)
USER_HASHES = _mapped(_user_fault)
