"""Parses the web configuration file into checked, frozen values; does not open the files it names.

All errors are reported together, each with file, line and key. Values that Go's TLS supports and Python's does not are
rejected, not ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ibpulse.errors import ConfigError
from ibpulse.web.auth.fields import (
    TLS12_CIPHERS,
    Burst,
    Ciphers,
    ClientAuth,
    Curves,
    EntriesError,
    FilePath,
    Headers,
    IntervalNs,
    OneText,
    Texts,
    TlsVersion,
    Truth,
    Users,
)
from ibpulse.yaml_file import YamlFile

EXAMPLE = "tls_server_config: {cert_file: a.crt}"
# the deepest value of the format is a header, three keys down
MAX_DEPTH = 3
EMPTY = ("", "~", "null", "Null", "NULL")

Keys = tuple[str, ...]


@dataclass(slots=True)
class ConfigSource:
    """The texts of a file as nested mappings and lists without empty values, the line of each key, and errors."""

    file: YamlFile
    texts: dict[str, Any] = field(default_factory=dict)
    lines: dict[Keys, int] = field(default_factory=dict)

    def place(self, keys: Keys) -> str:
        """File, line and key as the prefix of a message; the line is that of the nearest key present."""
        near = keys
        while near and near not in self.lines:
            near = near[:-1]
        line = f":{self.lines[near]}" if near else ""
        return f"{self.file.path}{line}" + (f": {'.'.join(keys)}" if keys else "")

    def read(self, root: yaml.Node | None) -> None:
        """Read the texts from the root of the file."""
        if isinstance(root, yaml.MappingNode):
            self.texts = dict(self._entries(root, ()))
        elif root is not None and not _is_empty(root):
            self.file.faults.append(f"{self.file.path}: is not a mapping; write it like {EXAMPLE}")

    def _entries(self, node: yaml.MappingNode, keys: Keys) -> Iterator[tuple[str, Any]]:
        """Key and content of each non-empty entry of a mapping."""
        for name, line, value in self.file.entries(node, lambda name: f"{'.'.join((*keys, name))}:"):
            self.lines[(*keys, name)] = line
            if not _is_empty(value):
                yield name, self._content(value, (*keys, name))

    def _content(self, node: yaml.Node, keys: Keys) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        if len(keys) >= MAX_DEPTH:
            self.file.faults.append(f"{self.place(keys)}: not a single value; give one text")
            return ""
        if isinstance(node, yaml.MappingNode):
            return dict(self._entries(node, keys))
        return [self._content(item, (*keys, str(number))) for number, item in enumerate(node.value)]


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in EMPTY


def read_source(path: Path) -> ConfigSource:
    """The texts of the file; errors if it cannot be read or is not YAML."""
    source = ConfigSource(YamlFile(path))
    source.read(source.file.compose("correct --web.config.file or remove it"))
    return source


class WebConfigSection(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TlsConfig(WebConfigSection):
    """`tls_server_config`: certificate and key, inline or in files, and client authentication."""

    cert: OneText | None = None
    key: OneText | None = Field(default=None, repr=False)
    client_ca: OneText | None = None
    cert_file: FilePath | None = None
    key_file: FilePath | None = None
    client_ca_file: FilePath | None = None
    client_auth_type: ClientAuth = "NoClientCert"
    client_allowed_sans: Texts = ()
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"
    cipher_suites: Ciphers = ()
    prefer_server_cipher_suites: Truth = True
    curve_preferences: Curves = ()

    def files(self) -> tuple[Path, ...]:
        """The files it names."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path)


class HttpConfig(WebConfigSection):
    """`http_server_config`: headers of every response. HTTP/2 is not supported, whatever `http2` says."""

    http2: Truth = True
    headers: Headers = Field(default_factory=dict)


class RateConfig(WebConfigSection):
    """`rate_limit`: one request every `interval` (ns), with bursts of `burst`; no limit at 0."""

    interval: IntervalNs = 0
    burst: Burst = 0


class WebConfig(WebConfigSection):
    """The whole file."""

    tls_server_config: TlsConfig | None = None
    http_server_config: HttpConfig = HttpConfig()
    basic_auth_users: Users = Field(default_factory=dict, repr=False)
    rate_limit: RateConfig = RateConfig()


SECTIONS: Mapping[str, type[WebConfigSection]] = {
    "tls_server_config": TlsConfig,
    "http_server_config": HttpConfig,
    "rate_limit": RateConfig,
}


def read_config(path: Path) -> tuple[WebConfig, ConfigSource]:
    """The checked file, and its texts with the line of each key.

    Raises:
        ConfigError: lists all errors in the file.
    """
    source = read_source(path)
    faults = list(source.file.faults)
    # a section without keys counts as absent, as in Go
    texts = {key: content for key, content in source.texts.items() if content}
    if not texts and not faults:
        faults.append(
            f"{path}: is empty, so it would ask for no password and no TLS; write basic_auth_users or "
            "tls_server_config, or remove --web.config.file to run without"
        )
    config = WebConfig()
    try:
        config = WebConfig.model_validate(texts, context={"directory": path.parent})
    except ValidationError as error:
        faults += [sentence for fault in error.errors() for sentence in _sentences(fault, source)]
    faults += [f"{source.place(keys)}: {sentence}" for keys, sentence in _find_contradictions(texts)]
    if faults:
        raise ConfigError(faults)
    return config, source


def _sentences(fault: Any, source: ConfigSource) -> Iterator[str]:
    keys = tuple(map(str, fault["loc"]))
    error = fault.get("ctx", {}).get("error")
    if fault["type"] == "extra_forbidden":
        yield f"{source.place(keys)}: no such key; {_advice(keys)}"
    elif isinstance(error, EntriesError):
        yield from (f"{source.place((*keys, name))}: {sentence}" for name, sentence in error.faults.items())
    elif error is not None:
        yield f"{source.place(keys)}: {error}"
    else:
        yield f"{source.place(keys)}: is not a mapping; write it like {keys[-1]}: {{key: value}}"


def _advice(keys: Keys) -> str:
    known = list(SECTIONS.get(keys[0], WebConfig).model_fields)
    nearest = get_close_matches(keys[-1], known, n=1, cutoff=0.6)
    return f"did you mean {nearest[0]}?" if nearest else f"known keys: {', '.join(known)}"


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
