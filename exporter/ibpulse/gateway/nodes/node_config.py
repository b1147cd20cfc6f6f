"""The node configuration file: passwords and TLS for asking nodes, in the format of Prometheus for HTTP clients.

A change of the file, or of a file that it names, is read again. An invalid change is a problem, and the previous
configuration stays active.
"""

from __future__ import annotations

import base64
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from ibpulse.base.errors import ConfigError
from ibpulse.base.files import FileSignature, ForeignFile, sign_file
from ibpulse.base.text import escape_controls
from ibpulse.base.values import PATH, TEXT, YAML_TRUTH
from ibpulse.base.yaml import YamlFile, entry
from ibpulse.core.client.transport import NodeAccess

EXAMPLE = "basic_auth: {username: gateway, password_file: password}"
MAX_SECRET_BYTES = 4096


@dataclass(frozen=True, slots=True)
class BasicAuthSection:
    """`basic_auth`: the user, and the password inline or in a file."""

    username: str | None = entry(TEXT)
    password: str | None = entry(TEXT, secret=True)
    password_file: Path | None = entry(PATH)


@dataclass(frozen=True, slots=True)
class ClientTlsSection:
    """`tls_config`: the authority of the nodes, the gateway's own certificate, the name in the nodes' certificates."""

    ca_file: Path | None = entry(PATH)
    cert_file: Path | None = entry(PATH)
    key_file: Path | None = entry(PATH)
    server_name: str | None = entry(TEXT)
    insecure_skip_verify: bool = entry(YAML_TRUTH, False)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The whole file."""

    basic_auth: BasicAuthSection | None = entry(BasicAuthSection)
    tls_config: ClientTlsSection | None = entry(ClientTlsSection)


class NodeConfigFile:
    """The access of one file; without a path, that of a source without passwords."""

    def __init__(self, path: Path | None = None) -> None:
        """Read the file. Blocks.

        Raises:
            ConfigError: lists all faults, with file, line and key.
        """
        self.path = path
        self.problem = ""
        self._files: tuple[Path, ...] = ()
        self._seen: tuple[FileSignature, ...] = ()
        # several sources have the same file, and are read in parallel
        self._lock = threading.Lock()
        self.access = NodeAccess() if path is None else self._load(path)

    def poll(self) -> bool:
        """Read the files again if one changed; whether there is a new access. Blocks."""
        with self._lock:
            if self.path is None or tuple(map(sign_file, self._files)) == self._seen:
                return False
            try:
                self.access, self.problem = self._load(self.path), ""
            except ConfigError as error:
                self.problem = f"{'; '.join(error.faults)}; the previous configuration stays active"
                return False
            return True

    def _load(self, path: Path) -> NodeAccess:
        config, source = read_node_config(path)
        auth, tls = config.basic_auth, config.tls_config
        named = (*([auth.password_file] if auth else ()), *([tls.ca_file, tls.cert_file, tls.key_file] if tls else ()))
        # before the files are read, so that no later change is missed
        self._files = (path, *(file for file in named if file))
        self._seen = tuple(map(sign_file, self._files))
        authorization = _make_authorization(auth, source) if auth else ""
        server_name = (tls and tls.server_name) or ""
        return NodeAccess(_make_tls(tls, source), server_name, authorization, verified_only=tls is not None)


def read_node_config(path: Path) -> tuple[NodeConfig, YamlFile]:
    """The checked file, and the line of each key; the files that it names are not opened.

    Raises:
        ConfigError: lists all faults.
    """
    file = YamlFile(path)
    texts = file.read_texts("correct the path or the file's permissions", EXAMPLE)
    texts = {key: content for key, content in texts.items() if content}
    config = file.read_section(NodeConfig, texts)
    if not file.faults and not texts:
        file.faults.append(f"{path}: is empty; write basic_auth or tls_config, or do not name the file")
    if not file.faults:
        file.faults += (f"{file.place(keys)}: {sentence}" for keys, sentence in _find_contradictions(config))
    if file.faults:
        raise ConfigError(file.faults)
    return config, file


def _find_contradictions(config: NodeConfig) -> list[tuple[tuple[str, ...], str]]:
    found: list[tuple[tuple[str, ...], str]] = []
    auth, tls = config.basic_auth, config.tls_config
    if auth and (not auth.username or ":" in auth.username or not auth.username.isprintable()):
        found.append((("basic_auth", "username"), "give a name of printable characters without a colon"))
    if auth and (auth.password is None) == (auth.password_file is None):
        found.append((("basic_auth", "password_file"), "give either password_file or password"))
    if tls and (tls.cert_file is None) != (tls.key_file is None):
        found.append((("tls_config", "key_file"), "cert_file and key_file belong together; give both or none"))
    if tls and tls.insecure_skip_verify:
        advice = "is not supported, because any server could then collect the password; give ca_file"
        found.append((("tls_config", "insecure_skip_verify"), advice))
    return found


def _make_authorization(auth: BasicAuthSection, source: YamlFile) -> str:
    password = auth.password
    if auth.password_file:
        password = _read_secret(auth.password_file, source.place(("basic_auth", "password_file")))
    return f"Basic {base64.b64encode(f'{auth.username}:{password}'.encode()).decode()}"


def _read_secret(path: Path, place: str) -> str:
    """The only line of a file."""
    file = ForeignFile(path, ConfigError, f"{place}:", "correct the path or the file")
    text = file.read_text(MAX_SECRET_BYTES, "write the password into it, in one line").strip()
    if not text or escape_controls(text) != text:
        file.refuse("is not a password", "write it into the file, in one line")
    return text


def _make_tls(tls: ClientTlsSection | None, source: YamlFile) -> ssl.SSLContext:
    """The context with which nodes are verified; without `ca_file`, by the authorities of the system."""
    if tls is None:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ValueError) as error:
        place = source.place(("tls_config", "ca_file"))
        raise ConfigError([f"{place}: {tls.ca_file} has no usable certificate: {_reason(error)}"]) from error
    if tls.cert_file and tls.key_file:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=_refuse_passphrase)
        except (OSError, ValueError) as error:
            place = source.place(("tls_config", "cert_file"))
            pair = f"{tls.cert_file} and {tls.key_file}"
            raise ConfigError([f"{place}: {pair} are not a certificate and its key: {_reason(error)}"]) from error
    return context


def _refuse_passphrase() -> str:
    raise ValueError("the key is encrypted; give one without a passphrase")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
