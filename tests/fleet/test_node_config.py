"""The node configuration file: what is taken, the sentence for each thing that is not, and its reload."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.gateway.nodes import discovery
from ibpulse.gateway.nodes.discovery import NodeConfigFile
from tests.web.certificates import make_authority, openssl, sign


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    authority = make_authority(directory)
    sign(authority, directory, "client", "DNS:gateway")
    sign(authority, directory, "other", "DNS:other")
    return directory


def load(directory: Path, text: str) -> NodeConfigFile:
    path = directory / "nodes.yml"
    path.write_text(text)
    return NodeConfigFile(path)


def faults(directory: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(directory, text)
    return [fault.replace(f"{directory}/", "") for fault in caught.value.faults]


def basic(pair: str) -> str:
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def test_a_password_is_inline_in_a_file_or_missing(tmp_path: Path) -> None:
    config = NodeConfigFile()
    assert (config.access.authorization, config.access.server_name, config.poll()) == ("", "", False)
    assert load(tmp_path, "basic_auth: {username: ops, password: s:e c}").access.authorization == basic("ops:s:e c")
    (tmp_path / "password").write_text(" tröt\n")
    config = load(tmp_path, "basic_auth: {username: ops, password_file: password}")
    assert config.access.authorization == basic("ops:tröt")
    assert "Basic" not in repr(config.access)
    for text in ("one\ntwo", ""):
        (tmp_path / "password").write_text(text)
        (fault,) = faults(tmp_path, "basic_auth: {username: ops, password_file: password}")
        assert "password is not a password; write " in fault


# openssl makes the certificates
@pytest.mark.real("process")
@pytest.mark.needs("openssl")
def test_certificates_and_the_name_of_the_server(tmp_path: Path, certificates: Path) -> None:
    config = load(
        tmp_path,
        f"tls_config:\n  ca_file: {certificates}/authority.crt\n  cert_file: {certificates}/client.crt\n"
        f"  key_file: {certificates}/client.key\n  server_name: ibpulse.example\n  insecure_skip_verify: false\n",
    )
    assert config.access.server_name == "ibpulse.example"
    assert [dict(entry["subject"][0])["commonName"] for entry in config.access.tls.get_ca_certs()] == ["authority"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "nodes.yml: is empty; write basic_auth or tls_config, or do not name the file"),
        ("[]", "nodes.yml: is not a mapping; write it like basic_auth: {username: gateway, password_file: password}"),
        ("basic_auth: x", "nodes.yml:1: basic_auth: is not a mapping; write it like basic_auth: {key: value}"),
        ("\nbasic_aut: {}\nx: y", "nodes.yml:3: x: no such key; known keys: basic_auth, tls_config"),
        ("basic_aut: {a: b}", "nodes.yml:1: basic_aut: no such key; did you mean basic_auth?"),
        ("basic_auth:\n  username: ops\n", "nodes.yml:1: basic_auth.password_file: give either password_file or"),
        (
            "basic_auth:\n  username: ops\n  password: x\n  password_file: y\n",
            "nodes.yml:4: basic_auth.password_file: give either password_file or password",
        ),
        ("basic_auth: {username: 'a:b', password: x}", "nodes.yml:1: basic_auth.username: give a name of printable"),
        ("basic_auth: {username: a, password: [x]}", "nodes.yml:1: basic_auth.password: not a single value"),
        ("basic_auth: {username: a, password_file: none}", "nodes.yml:1: basic_auth.password_file"),
        ("tls_config: {cert_file: a}", "nodes.yml:1: tls_config.key_file: cert_file and key_file belong together"),
        ("tls_config: {insecure_skip_verify: true}", "nodes.yml:1: tls_config.insecure_skip_verify"),
        ("tls_config: {ca_file: none}", "nodes.yml:1: tls_config.ca_file: none has no usable certificate"),
        ("tls_config: {ca_file: nodes.yml}", "nodes.yml:1: tls_config.ca_file: nodes.yml has no usable certificate"),
    ],
)
def test_faults_name_file_line_and_key(tmp_path: Path, text: str, fault: str) -> None:
    assert any(found.startswith(fault) for found in faults(tmp_path, text))


# openssl makes the certificates
@pytest.mark.real("process")
@pytest.mark.needs("openssl")
def test_keys_of_other_certificates_and_with_a_passphrase_are_refused(tmp_path: Path, certificates: Path) -> None:
    (fault,) = faults(
        tmp_path, f"tls_config:\n  cert_file: {certificates}/client.crt\n  key_file: {certificates}/other.key\n"
    )
    assert fault.startswith("nodes.yml:2: tls_config.cert_file: ")
    assert fault.endswith("are not a certificate and its key: KEY_VALUES_MISMATCH")
    # a prompt for the passphrase would wait forever
    key = tmp_path / "locked.key"
    openssl("pkey", "-in", certificates / "client.key", "-aes256", "-passout", "pass:x", "-out", key)
    (fault,) = faults(tmp_path, f"tls_config: {{cert_file: {certificates}/client.crt, key_file: {key}}}")
    assert fault.endswith("the key is encrypted; give one without a passphrase")


def test_changed_passwords_are_read_and_broken_ones_ignored(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("one")
    config = load(tmp_path, "basic_auth: {username: ops, password_file: password}")
    first = config.access
    assert (config.poll(), config.access) == (False, first)
    password.write_text("another")
    assert config.poll()
    assert config.access.authorization == basic("ops:another")
    password.unlink()
    assert not config.poll()
    assert config.problem.endswith("the previous configuration stays active")
    assert config.access.authorization == basic("ops:another")
    password.write_text("third")
    assert config.poll()
    assert (config.access.authorization, config.problem) == (basic("ops:third"), "")


def test_sources_with_one_file_read_it_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(tmp_path, "basic_auth: {username: ops, password: one}")
    read, locked = discovery.read_node_config, []

    def watched(path: Path) -> object:
        locked.append(config._lock.locked())
        return read(path)

    monkeypatch.setattr(discovery, "read_node_config", watched)
    (tmp_path / "nodes.yml").write_text("basic_auth: {username: ops, password: other}")
    assert config.poll()
    assert locked == [True]
