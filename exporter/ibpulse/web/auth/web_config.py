"""Parses the web configuration file into checked, frozen values; does not open the files it names.

All errors are reported together, each with file, line and key. Values that Go's TLS supports and Python's does not are
rejected, not ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibpulse.base.values import PATH, TEXT, YAML_TRUTH, many
from ibpulse.base.yaml import Keys, YamlFile, entry
from ibpulse.errors import ConfigError
from ibpulse.web.auth.fields import (
    BURST,
    CIPHER_LIST,
    CLIENT_AUTH_TYPE,
    CURVE_LIST,
    HEADER_TEXTS,
    INTERVAL,
    TLS12_CIPHERS,
    TLS_VERSION,
    USER_HASHES,
)

EXAMPLE = "tls_server_config: {cert_file: a.crt}"
ADVICE = "correct --web.config.file or remove it"


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
