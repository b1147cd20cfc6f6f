"""The web configuration file: its keys, their checks, the TLS context that it describes, and its reloads.

An invalid change is logged once, and the previous configuration stays active.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import ConfigError
from ibpulse.base.files import FileSignature, ForeignFile, sign_file
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.base.text import sentence_list
from ibpulse.base.units import parse_duration
from ibpulse.base.values import PATH, TEXT, YAML_TRUTH, EntriesError, Kind, choice, many, one, unknown_word, whole
from ibpulse.base.yaml import Keys, YamlFile, entry
from ibpulse.core.metrics.web import WebCounts

EXAMPLE = "tls_server_config: {cert_file: a.crt}"
ADVICE = "correct --web.config.file or remove it"


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
log = logging.getLogger(__name__)

POLL_SECONDS = 1.0


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


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """`tls_server_config`: certificate and key, inline or in files, and client authentication."""

    cert: str | None = entry(TEXT)
    key: str | None = entry(TEXT, secret=True)
    client_ca: str | None = entry(TEXT)
    cert_file: Path | None = entry(PATH)
    key_file: Path | None = entry(PATH)
    client_ca_file: Path | None = entry(PATH)
    client_auth_type: str = entry(CLIENT_AUTH_TYPE, "NoClientCert")
    client_allowed_sans: tuple[str, ...] = entry(many(TEXT, split=False), ())
    min_version: str = entry(TLS_VERSION, "TLS12")
    max_version: str = entry(TLS_VERSION, "TLS13")
    cipher_suites: tuple[str, ...] = entry(CIPHER_LIST, ())
    prefer_server_cipher_suites: bool = entry(YAML_TRUTH, True)
    curve_preferences: tuple[str, ...] = entry(CURVE_LIST, ())

    def files(self) -> tuple[Path, ...]:
        """The files it names."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path)


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """`http_server_config`: headers of every response. HTTP/2 is not supported, whatever `http2` says."""

    http2: bool = entry(YAML_TRUTH, True)
    headers: Mapping[str, str] = entry(HEADER_TEXTS, {})


@dataclass(frozen=True, slots=True)
class RateConfig:
    """`rate_limit`: one request every `interval` (ns), with bursts of `burst`; no limit at 0."""

    interval: int = entry(INTERVAL, 0)
    burst: int = entry(BURST, 0)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The whole file."""

    tls_server_config: TlsConfig | None = entry(TlsConfig)
    http_server_config: HttpConfig = entry(HttpConfig, HttpConfig())
    basic_auth_users: Mapping[str, str] = entry(USER_HASHES, {}, secret=True)
    rate_limit: RateConfig = entry(RateConfig, RateConfig())


def read_config(path: Path) -> tuple[WebConfig, YamlFile]:
    """The checked file, and the line of each key.

    Raises:
        ConfigError: lists all errors in the file.
    """
    file = YamlFile(path)
    # a section without keys counts as absent, as in Go
    texts = {key: content for key, content in file.read_texts(ADVICE, EXAMPLE).items() if content}
    if not texts and not file.faults:
        file.faults.append(
            f"{path}: is empty, so it would ask for no password and no TLS; write basic_auth_users or "
            "tls_server_config, or remove --web.config.file to run without"
        )
    config = file.read_section(WebConfig, texts)
    file.faults += [f"{file.place(keys)}: {sentence}" for keys, sentence in _find_contradictions(texts)]
    if file.faults:
        raise ConfigError(file.faults)
    return config, file


def _find_contradictions(texts: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """Contradictions between keys that are valid individually."""
    tls = texts.get("tls_server_config")
    if isinstance(tls, dict):
        for find in (_find_pair_faults, _find_client_faults, _find_protocol_faults):
            yield from ((("tls_server_config", key), sentence) for key, sentence in find(tls))
    rate = texts.get("rate_limit")
    if isinstance(rate, dict) and rate.get("interval", "0") not in ("0", "0s") and rate.get("burst", "0") == "0":
        yield ("rate_limit", "burst"), "is 0, which would refuse every request; give at least 1, or remove rate_limit"


def _find_pair_faults(tls: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("cert", "key"):
        if name in tls and f"{name}_file" in tls:
            yield name, f"cannot be combined with {name}_file; give one of them"
        if name not in tls and f"{name}_file" not in tls:
            yield f"{name}_file", f"is missing; TLS needs {name}_file, or {name} with the PEM text"
    if "client_ca" in tls and "client_ca_file" in tls:
        yield "client_ca", "cannot be combined with client_ca_file; give one of them"


def _find_client_faults(tls: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    policy = tls.get("client_auth_type", "NoClientCert")
    authority = next((name for name in ("client_ca_file", "client_ca") if name in tls), "")
    if authority and policy == "NoClientCert":
        yield authority, "has no effect without client_auth_type; set it as well"
    if not authority and policy in ("VerifyClientCertIfGiven", "RequireAndVerifyClientCert"):
        yield "client_auth_type", f"{policy!r} needs client_ca_file, the authority that signs client certificates"
    if "client_allowed_sans" in tls and policy != "RequireAndVerifyClientCert":
        yield "client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert; set it or remove the list"


def _find_protocol_faults(tls: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    suites, highest = tls.get("cipher_suites", []), tls.get("max_version")
    if (tls.get("min_version"), highest) == ("TLS13", "TLS12"):
        yield "min_version", "is above max_version; swap them"
    if suites and highest == "TLS12" and TLS12_CIPHERS.keys().isdisjoint(suites):
        yield "cipher_suites", "has no TLS 1.2 suite, but max_version is TLS12; add one or raise max_version"
    curves = tls.get("curve_preferences")
    if isinstance(curves, list) and len(curves) > 1:
        yield (
            "curve_preferences",
            f"{', '.join(map(str, curves))!r} has more than one curve; give one, or remove the list",
        )


NAME_KINDS = ("DNS", "email", "IP Address", "URI")
SECTION = "tls_server_config"
MAX_BYTES = 1_000_000
PROTOCOLS = ["http/1.1"]
# OpenSSL's reasons for a key of another certificate, and of another type
MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


def find_name(peer: ssl.SSLObject | None) -> str | None:
    """The name in a certificate: its common name, else its first alternative name; None without either."""
    certificate = _certificate(peer)
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return next(iter([*common, *_alternative_names(certificate)]), None)


def has_allowed_name(peer: ssl.SSLObject | None, allowed: frozenset[str]) -> bool:
    """Whether one of the certificate's alternative names is allowed; always true without a list."""
    return not allowed or not allowed.isdisjoint(_alternative_names(_certificate(peer)))


def _certificate(peer: ssl.SSLObject | None) -> dict[str, Any]:
    return dict((peer.getpeercert() if peer else None) or {})


def _alternative_names(certificate: dict[str, Any]) -> Iterator[str]:
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "IP Address":
            # OpenSSL writes 0:0:0:0:0:0:0:1 for ::1, and an error text for an invalid address
            with suppress(ValueError):
                yield str(ipaddress.ip_address(value.strip()))
        elif kind in NAME_KINDS:
            yield value


@dataclass(frozen=True, slots=True)
class TlsServer:
    """The TLS context of new connections, and the names allowed in client certificates, if restricted."""

    context: ssl.SSLContext
    allowed_names: frozenset[str]


class _EncryptedKeyError(Exception):
    """The key is encrypted."""


def build_tls(config: TlsConfig, source: YamlFile) -> TlsServer:
    """The TLS policy of a checked section. Reads files, so it blocks.

    Raises:
        ConfigError: lists all unreadable files, or the errors of OpenSSL.
    """
    faults: list[str] = []
    certificate = _read("cert", config.cert, config.cert_file, source, faults)
    key = _read("key", config.key, config.key_file, source, faults)
    authority = _read("client_ca", config.client_ca, config.client_ca_file, source, faults)
    if faults:
        raise ConfigError(faults)
    try:
        context = _make_context(config)
    except (ssl.SSLError, ValueError) as error:
        # the system's policy may forbid a valid configuration
        raise ConfigError([f"{source.place((SECTION,))}: rejected by this system's OpenSSL: {error}"]) from error
    faults += _load_pair(context, certificate, key, _written(config, "cert", source), _written(config, "key", source))
    if config.client_ca or config.client_ca_file:
        try:
            context.load_verify_locations(cadata=authority.decode("ascii"))
        except (ssl.SSLError, ValueError):
            place = _written(config, "client_ca", source)
            faults.append(f"{place} has no PEM certificate; give those of the authority that signs client certificates")
    # after the authority: OpenSSL would otherwise request certificates that it cannot verify
    context.verify_mode = CLIENT_AUTH[config.client_auth_type]
    if faults:
        raise ConfigError(faults)
    return TlsServer(context, frozenset(config.client_allowed_sans))


def _read(name: str, text: str | None, path: Path | None, source: YamlFile, faults: list[str]) -> bytes:
    """The PEM text, from the file or inline; empty if not given."""
    if path is None:
        return (text or "").encode()
    place = source.place((SECTION, f"{name}_file"))
    file = ForeignFile(path, ConfigError, f"{place}:", "correct the path or the file's permissions")
    try:
        return file.read(MAX_BYTES, "give only the certificates that are needed")
    except ConfigError as error:
        faults += error.faults
        return b""


def _written(config: TlsConfig, name: str, source: YamlFile) -> str:
    """The prefix of a message about a certificate or key: its place and its file."""
    path: Path | None = getattr(config, f"{name}_file")
    place = source.place((SECTION, f"{name}_file" if path else name))
    return f"{place}: {path}" if path else f"{place}: the text"


def _make_context(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    suites = [TLS12_CIPHERS[name] for name in config.cipher_suites if name in TLS12_CIPHERS]
    # a list without TLS 1.2 suites means TLS 1.3 only
    only_newest = bool(config.cipher_suites) and not suites
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if only_newest else TLS_VERSIONS[config.min_version]
    context.maximum_version = TLS_VERSIONS[config.max_version]
    if suites:
        context.set_ciphers(":".join(suites))
    if config.curve_preferences:
        context.set_ecdh_curve(CURVES[config.curve_preferences[0]])
    if config.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # as in Go: every certificate among the authorities is trusted, including intermediates
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(PROTOCOLS)
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, cert_place: str, key_place: str) -> list[str]:
    """The error in certificate and key, if any. Python loads them only from files, so these are in memory."""
    with _memory_file(certificate) as cert_path, _memory_file(key) as key_path:
        try:
            context.load_cert_chain(cert_path, key_path, password=_refuse_passphrase)
        except _EncryptedKeyError:
            return [f"{key_place} is encrypted; give a key without a passphrase, readable only by this user"]
        except ssl.SSLError as error:
            if error.reason in MISMATCHES:
                return [f"{key_place} does not match the certificate; give the certificate's own key"]
            if b"-----BEGIN CERTIFICATE-----" not in certificate:
                return [f"{cert_place} has no PEM certificate; give a chain with the server's certificate first"]
            return [f"{key_place} and its certificate cannot be used: {error.reason or error}; give both in PEM form"]
    return []


def _refuse_passphrase() -> NoReturn:
    raise _EncryptedKeyError


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """The path of an in-memory file with these bytes, valid inside the block."""
    with os.fdopen(os.memfd_create("ibpulse-tls"), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"


@dataclass(frozen=True, slots=True)
class Rules:
    """The active rules: `tls` of new connections, if any, users if a login is required, and the headers of responses.

    Names of headers are in lower case.
    """

    tls: TlsServer | None
    users: Mapping[str, str]
    headers: tuple[tuple[bytes, bytes], ...]

    @property
    def need_login(self) -> bool:
        """Whether every client needs a password or a certificate."""
        return bool(self.users) or (self.tls is not None and self.tls.context.verify_mode is ssl.CERT_REQUIRED)


def read_rules(path: Path) -> Rules:
    """The rules of a file and of the files it names. Weak points are logged.

    Raises:
        ConfigError: lists all errors.
    """
    return make_rules(path, *read_config(path))


def make_rules(path: Path, config: WebConfig, source: YamlFile) -> Rules:
    """The rules of a file that was read; the files it names are read now. Weak points are logged.

    Raises:
        ConfigError: lists all errors.
    """
    tls = build_tls(config.tls_server_config, source) if config.tls_server_config else None
    headers = config.http_server_config.headers.items()
    encoded = tuple((name.lower().encode(), text.encode()) for name, text in headers)
    rules = Rules(tls, dict(config.basic_auth_users), encoded)
    costs = sorted(set(map(cost_of, rules.users.values())))
    if len(costs) > 1:
        log.warning(
            "%s: basic_auth_users: the hashes have costs of %s, so the time of a refusal tells the users of the "
            "cheaper ones from names that do not exist; use one cost for all",
            path,
            sentence_list(list(map(str, costs))),
        )
    return rules


def cost_of(stored: str) -> int:
    """The cost of a bcrypt hash."""
    return int(stored[4:6])


class TokenBucket:
    """A rate limit: a burst of `burst` requests, and one more every `interval_ns`; no limit at 0."""

    def __init__(self, interval_ns: int, burst: int) -> None:
        self.interval_ns, self.burst = interval_ns, burst
        self._tokens = float(burst)
        self._filled_at_ns: int | None = None

    def take(self, now_ns: int) -> bool:
        """Whether a request may pass at this time of a monotonic clock."""
        if not self.interval_ns:
            return True
        since_ns = now_ns - (now_ns if self._filled_at_ns is None else self._filled_at_ns)
        self._filled_at_ns = now_ns
        self._tokens = min(float(self.burst), self._tokens + since_ns / self.interval_ns)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class WebConfigReloader:
    """The rules of one web configuration file."""

    def __init__(self, path: Path, counts: WebCounts | None = None) -> None:
        """Read the file and the files it names, and note success or failure in `counts`. Weak points are logged.

        Raises:
            ConfigError: lists all errors.
        """
        self._path = path
        self._counts = counts or WebCounts()
        self._threads = DaemonThreads(1, "web-config")
        # the files, and their signature at the last attempt to read them
        self._files: tuple[Path, ...] = (path,)
        self._loaded: tuple[FileSignature, ...] = ()
        self.rules, self.bucket = self._load()
        self._seen: tuple[FileSignature, ...] = self._loaded
        self._counts.config_reloaded = True

    async def watch(self, errors: InternalErrors) -> None:
        """Poll the files once a second, forever, in a thread; an exception of one poll is counted in `errors`."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with errors.boundary("web"):
                await asyncio.get_running_loop().run_in_executor(self._threads, self.poll)

    def poll(self) -> None:
        """Reload files that changed, once they no longer do: several files are then completely written."""
        seen = tuple(map(sign_file, self._files))
        if seen == self._seen and seen != self._loaded:
            self._loaded = seen
            self._renew()
        self._seen = seen

    def _renew(self) -> None:
        try:
            rules, bucket = self._load()
            if (rules.tls is None) != (self.rules.tls is None):
                raise ConfigError([f"{self._path}: TLS cannot be switched on or off at run time; restart ibpulse"])
            if self.rules.need_login and not rules.need_login:
                # more often a file that was truncated or half edited than a wish
                raise ConfigError(
                    [f"{self._path}: no longer asks for a user or a certificate; restore it, or restart ibpulse"]
                )
        except ConfigError as error:
            self._counts.config_reloaded = False
            for fault in error.faults:
                log.error("web configuration not reloaded: %s", fault)
            return
        if (bucket.interval_ns, bucket.burst) != (self.bucket.interval_ns, self.bucket.burst):
            self.bucket = bucket
        self.rules = rules
        self._counts.config_reloaded = True
        log.info("reloaded the web configuration from %s", self._path)

    def _load(self) -> tuple[Rules, TokenBucket]:
        """The rules of the files. The signature is taken first, so that no later change is missed."""
        own = sign_file(self._path)
        config, source = read_config(self._path)
        section = config.tls_server_config
        others = section.files() if section else ()
        self._files = (self._path, *others)
        self._loaded = (own, *map(sign_file, others))
        rules = make_rules(self._path, config, source)
        return rules, TokenBucket(config.rate_limit.interval, config.rate_limit.burst)
