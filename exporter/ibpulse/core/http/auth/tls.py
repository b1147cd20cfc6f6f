"""Builds the TLS context of the web configuration, and reads the names in client certificates."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ibpulse.base.errors import ConfigError
from ibpulse.base.files import ForeignFile
from ibpulse.base.yaml import YamlFile
from ibpulse.core.http.auth.web_config import CLIENT_AUTH, CURVES, TLS12_CIPHERS, TLS_VERSIONS, TlsConfig

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

    @property
    def needs_certificate(self) -> bool:
        """Whether clients without a verified certificate are turned away."""
        return self.context.verify_mode is ssl.CERT_REQUIRED


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
        faults += _load_authority(context, authority, _written(config, "client_ca", source))
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


def _load_authority(context: ssl.SSLContext, authority: bytes, place: str) -> list[str]:
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError):
        return [f"{place} has no PEM certificate; give those of the authority that signs client certificates"]
    return []


def _refuse_passphrase() -> NoReturn:
    raise _EncryptedKeyError


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """The path of an in-memory file with these bytes, valid inside the block."""
    with os.fdopen(os.memfd_create("ibpulse-tls"), "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"
