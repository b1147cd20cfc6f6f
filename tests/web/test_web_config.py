"""The web configuration file: what is taken, and the sentence for each thing that is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.core.http.web_config import (
    CLIENT_AUTH,
    CURVES,
    HEADERS,
    TLS12_CIPHERS,
    TLS13_CIPHERS,
    TLS_VERSIONS,
    HttpConfig,
    RateConfig,
    TlsConfig,
    WebConfig,
    WebConfigReloader,
    read_config,
)
from tests.tables import for_each
from tests.web.certificates import make_authority, sign

HASH = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
SENT = "http_server_config"
ALICE = "basic_auth_users.alice:"
PAIR = "cert_file: a.crt, key_file: a.key"
DOCS = Path(__file__).parents[2] / "docs"
SAMPLES = sorted((DOCS / "web-config").glob("*.yml"))


def read(directory: Path, text: str) -> WebConfig:
    path = directory / "web.yml"
    path.write_text(text)
    return read_config(path)[0]


def faults(directory: Path, text: str) -> list[str]:
    """The faults of a file, without the name of its directory."""
    with pytest.raises(ConfigError) as caught:
        read(directory, text)
    return [fault.replace(f"{directory}/", "") for fault in caught.value.faults]


def test_a_section_without_keys_counts_as_absent_and_a_file_without_sections_is_refused(tmp_path: Path) -> None:
    text = "tls_server_config:\nbasic_auth_users: {}\n"
    assert read(tmp_path, f"{text}rate_limit: {{interval: 1s, burst: 2}}\n") == WebConfig(
        rate_limit=RateConfig(10**9, 2)
    )
    for empty in ("", "# nothing\n", f"{text}http_server_config: {{headers: }}\n"):
        (fault,) = faults(tmp_path, empty)
        assert fault.startswith(
            "web.yml: is empty, so it would ask for no password and no TLS; write basic_auth_users "
        )


def test_every_key_of_the_format_is_taken(tmp_path: Path) -> None:
    suites = ", ".join([*TLS12_CIPHERS, *TLS13_CIPHERS])
    config = read(
        tmp_path,
        f"""
tls_server_config:
  cert_file: tls/a.crt
  key_file: /etc/a.key
  client_ca_file: ca.crt
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [prometheus, 10.0.0.1]
  min_version: TLS12
  max_version: TLS13
  cipher_suites: [{suites}]
  prefer_server_cipher_suites: off
  curve_preferences: [X25519]
http_server_config:
  http2: true
  headers: {{Strict-Transport-Security: max-age=31536000, X-Frame-Options: deny}}
basic_auth_users: {{alice: {HASH}}}
rate_limit: {{interval: 10ms, burst: 20}}
""",
    )
    tls = config.tls_server_config
    assert tls
    assert tls.files() == (tmp_path / "tls/a.crt", Path("/etc/a.key"), tmp_path / "ca.crt")
    assert (tls.client_allowed_sans, tls.prefer_server_cipher_suites) == (("prometheus", "10.0.0.1"), False)
    assert config.http_server_config.headers["X-Frame-Options"] == "deny"
    assert dict(config.basic_auth_users) == {"alice": HASH}
    assert (config.rate_limit.interval, config.rate_limit.burst) == (10_000_000, 20)


def test_no_secret_shows_where_a_configuration_is_printed(tmp_path: Path) -> None:
    shown = repr(read(tmp_path, f"tls_server_config: {{cert: A, key: SECRET}}\nbasic_auth_users: {{alice: {HASH}}}\n"))
    assert "SECRET" not in shown
    assert HASH not in shown


FAULTS = [
    ("- a", "web.yml: is not a mapping; write it like tls_server_config: {cert_file: a.crt}"),
    ("a: [", "web.yml:1: not YAML: expected the node content, but found '<stream end>'; correct this line or"),
    ("\x00", "web.yml: not YAML: unacceptable character #x0000: special characters are not allowed; save"),
    ("tls: {}\ntls: {}\na: b", "web.yml:2: tls: is given twice, first in line 1; give it once"),
    ("tls_sever_config: {a: b}", "tls_sever_config: no such key; did you mean tls_server_config?"),
    ("xyz: 1", "xyz: no such key; known keys: tls_server_config, http_server_config, basic_auth_users, rate"),
    ("http_server_config: 2", "http_server_config: is not a mapping; write it like http_server_config:"),
    ("http_server_config:\n  http2: maybe", "web.yml:2: http_server_config.http2: unknown value 'maybe'; choose"),
    ("http_server_config: {http2: [on]}", "http_server_config.http2: not a single value; give one"),
    ("http_server_config: {headers: [a]}", "http_server_config.headers: is not a mapping of names to texts; write it"),
    ("basic_auth_users: {alice: secret}", f"{ALICE} is not a bcrypt hash; create one with `htpasswd -nBC 10 alice`"),
    (f"basic_auth_users: {{alice: {HASH.replace('zou', 'zoU')}}}", f"{ALICE} is not a bcrypt hash; create one with"),
    (f"basic_auth_users: {{alice: {HASH}{HASH}}}", f"{ALICE} is not a bcrypt hash; create one with"),
    (f"basic_auth_users: {{alice: {HASH.replace('10', '16')}}}", f"{ALICE} has cost 16; use 4 to 15, as in `htpasswd"),
    (f'basic_auth_users: {{"a:b": {HASH}}}', "basic_auth_users.a:b: browsers cannot send this name; use printable"),
    ("rate_limit: {burst: -1}", "rate_limit.burst: '-1' is not a whole number; choose 0 to 1000000"),
    ("rate_limit: {interval: 1s}", "rate_limit.burst: is 0, which would refuse every request; give at least 1"),
    ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: is missing; TLS needs key_file"),
]
HEADER_FAULTS = [
    ("Server: x", "Server: cannot be set here; choose from Content-Security-Policy, "),
    ("X-Frame-Options: DENY", "X-Frame-Options: 'DENY' is not allowed; choose deny or sameorigin"),
    ('X-XSS-Protection: "a\\nb"', "X-XSS-Protection: 'a\\nb' has characters that are not allowed in headers"),
    ("X-XSS-Protection: {a: b}", "X-XSS-Protection: not a single value; give one text"),
]
TLS_FAULTS = [
    ("max_version: TLS14", "max_version: unknown value 'TLS14'; did you mean TLS13?"),
    ("cert: A", "cert: cannot be combined with cert_file; give one of them"),
    ("client_ca: A, client_ca_file: b", "client_ca: cannot be combined with client_ca_file; give one of them"),
    ("client_ca_file: b", "client_ca_file: has no effect without client_auth_type; set it as well"),
    ("client_auth_type: RequireAndVerifyClientCert", "client_auth_type: 'RequireAndVerifyClientCert' needs client_ca_"),
    ("client_auth_type: RequireAnyClientCert", "client_auth_type: 'RequireAnyClientCert' accepts unverified certific"),
    ("client_allowed_sans: [a]", "client_allowed_sans: needs client_auth_type: RequireAndVerifyClientCert; set"),
    ("client_allowed_sans: {a: b}", "client_allowed_sans: is not a list; write it like [one, other]"),
    ("min_version: TLS10", "min_version: 'TLS10' is insecure and not supported; choose TLS12 or TLS13"),
    ("min_version: TLS13, max_version: TLS12", "min_version: is above max_version; swap them"),
    ("cipher_suites: [TLS_RSA_X]", "cipher_suites.0: 'TLS_RSA_X' is not supported; choose"),
    ("max_version: TLS12, cipher_suites: [TLS_AES_128_GCM_SHA256]", "cipher_suites: has no TLS 1.2 suite, but max_ve"),
    ("curve_preferences: [X25519, CurveP256]", "curve_preferences: 'X25519, CurveP256' has more than one curve; give"),
]


@for_each(
    [
        *FAULTS,
        *(
            (f"http_server_config: {{headers: {{{text}}}}}", f"http_server_config.headers.{fault}")
            for text, fault in HEADER_FAULTS
        ),
        *((f"tls_server_config: {{{PAIR}, {text}}}", f"tls_server_config.{fault}") for text, fault in TLS_FAULTS),
    ]
)
def test_a_fault_names_its_place_and_the_way_out(text: str, sentence: str, tmp_path: Path) -> None:
    wanted = sentence if sentence.startswith("web.yml:") else f"web.yml:1: {sentence}"
    found = faults(tmp_path, text)
    assert any(fault.startswith(wanted) for fault in found), found


def test_all_faults_are_reported_without_hashes(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        "tls_server_config: {min_version: TLS10, cipher_suites: [A, B], curve_preferences: [Z]}\n"
        "http_server_config: {http2: x}\nbasic_auth_users: {a: not-a-hash, b: other-secret}\nrate: 1\n",
    )
    assert len(found) == 10
    assert not any("secret" in fault or "not-a-hash" in fault for fault in found)


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(tmp_path / "none.yml")
    sentence = "none.yml: cannot be read: No such file or directory; correct --web.config.file or remove it"
    assert str(caught.value) == f"{tmp_path}/{sentence}"


@pytest.mark.real("process")
@pytest.mark.needs("openssl", "promtool")
@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.needs("X25519")] if "X25519" in path.read_text() else [])
        for path in SAMPLES
    ],
)
def test_promtool_accepts_the_samples_and_so_do_we(sample: Path, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    sign(authority, tmp_path, "server", "DNS:node")
    copy = tmp_path / sample.name
    copy.write_bytes(sample.read_bytes())
    checked = subprocess.run(
        ["promtool", "check", "web-config", str(copy)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    WebConfigReloader(copy)


def test_the_document_names_every_key_and_word_of_the_format() -> None:
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    keys = [key for section in (WebConfig, TlsConfig, HttpConfig, RateConfig) for key in section.__slots__]
    for word in (*keys, *TLS12_CIPHERS, *TLS_VERSIONS, *CURVES, *CLIENT_AUTH, *HEADERS):
        assert f"`{word}`" in page
    for sample in SAMPLES:
        assert f"(web-config/{sample.name})" in page
