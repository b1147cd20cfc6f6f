"""TLS on real sockets: who gets in, with which certificate, and what cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.core.http import server
from ibpulse.core.http.web_config import WebConfigReloader, has_allowed_name
from ibpulse.core.metrics.web import WebCounts
from tests.running import HANG_SECONDS
from tests.turns import until
from tests.web.certificates import openssl, sign
from tests.web.served import ASK, BROKEN_OFF, MUTUAL, Files, Served

# one program makes the certificates, the other speaks TLS as clients do
pytestmark = [pytest.mark.real("process"), pytest.mark.needs("openssl", "curl")]


async def test_tls_1_2_and_1_3_are_spoken_with_http_1_1_and_tls_1_1_is_not(served: Served) -> None:
    assert (await served.curl("--tls-max", "1.2"))[0] == 0
    assert (await served.curl("--tlsv1.3"))[0] == 0
    weak = ("--tls-max", "1.1", "--tlsv1.0", "--ciphers", "DEFAULT@SECLEVEL=0")
    assert (await served.curl(*weak))[0] == 35
    context = ssl.create_default_context(cafile=served.files.authority.cert)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("localhost", served.server.port, ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()


async def test_plain_http_on_the_tls_port_is_closed(served: Served, caplog: Any) -> None:
    for noise in (ASK, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), bytes(range(256)) * 8, b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(noise)
        writer.write_eof()
        assert b"HTTP/1.1 200" not in await asyncio.wait_for(reader.read(), HANG_SECONDS)
        writer.close()
    assert (await served.curl())[0] == 0
    assert not caplog.records


async def test_a_client_that_never_shakes_hands_is_given_up_and_delays_no_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    await until(lambda: served.server._server._handshakes)
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.05)
    reader, other = await asyncio.open_connection("127.0.0.1", served.server.port)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), HANG_SECONDS) == b""
    await served.server.stop()
    writer.close()
    other.close()


IF_GIVEN = MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
REFUSED = object()


@pytest.mark.parametrize(
    ("more", "who", "user"),
    [
        (MUTUAL, "", REFUSED),
        (MUTUAL, "stranger", REFUSED),
        (MUTUAL, "client", "client"),
        (IF_GIVEN, "", None),
        (IF_GIVEN, "client", "client"),
        (IF_GIVEN, "stranger", REFUSED),
        *(
            (f'{MUTUAL}\n  client_allowed_sans: ["{name}", other]', "client", "client")
            for name in ("scraper", "::1", "a@b.example", "spiffe://x/y")
        ),
        # the subject does not count, as in Go
        (f"{MUTUAL}\n  client_allowed_sans: [client, other]", "client", REFUSED),
    ],
)
async def test_a_certificate_is_a_user_or_does_not_get_in(files: Files, more: str, who: str, user: object) -> None:
    files.write(more)
    async with Served(files) as served:
        status, said = await served.curl(*(getattr(files, who).curl() if who else ()))
    if user is REFUSED:
        assert status in BROKEN_OFF
        assert "user" not in said
    else:
        assert (status, json.loads(said)) == (0, {"user": user, "scheme": "https"})


async def test_without_a_common_name_the_first_alternative_name_is_the_user(files: Files) -> None:
    files.write(MUTUAL)
    nameless = sign(files.clients, files.directory, "nameless", "IP:::1,DNS:scraper", subject="/O=lab")
    async with Served(files) as served:
        for version in ("1.2", "1.3"):
            assert await served.curl(*nameless.curl(), "--tls-max", version) == (0, '{"user":"::1","scheme":"https"}')


def test_no_certificate_has_no_allowed_name() -> None:
    assert has_allowed_name(None, frozenset())
    assert not has_allowed_name(None, frozenset({"a"}))


async def test_a_password_is_needed_besides_a_certificate(files: Files) -> None:
    hashed = "$2b$04$7PDk5AVwGy9BKHuRzGcKHeYz4NIKzoTZ0yUrUdkvVDNdAg6znAEMS"
    files.write(MUTUAL, f"basic_auth_users: {{alice: {hashed}}}\n")
    async with Served(files) as served:
        assert "/api/docs#login-needed" in (await served.curl(*files.client.curl()))[1]


async def test_suites_and_curve_are_those_of_the_file(files: Files) -> None:
    files.write("cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n  curve_preferences: [CurveP384]")
    async with Served(files) as served:
        peer, _ = await served.connect(maximum_version=ssl.TLSVersion.TLSv1_2)
        assert (peer.cipher() or ("",))[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"
        assert (await served.curl("--curves", "X25519"))[0] == 35
        assert (await served.curl("--curves", "P-384"))[0] == 0
    # without a suite of TLS 1.2
    files.write("cipher_suites: [TLS_AES_128_GCM_SHA256]\n  prefer_server_cipher_suites: false")
    async with Served(files) as served:
        assert (await served.curl("--tls-max", "1.2"))[0] == 35
        assert (await served.curl())[0] == 0


async def test_inline_certificate_key_and_authority_are_used(files: Files) -> None:
    def inline(name: str) -> str:
        return "|\n" + "".join(f"    {line}\n" for line in (files.directory / name).read_text().splitlines())

    files.path.write_text(
        f"tls_server_config:\n  cert: {inline('server.crt')}  key: {inline('server.key')}"
        f"  client_ca: {inline('clients.crt')}  client_auth_type: RequireAndVerifyClientCert\n"
    )
    async with Served(files) as served:
        assert (await served.curl(*files.client.curl()))[0] == 0


def open_faults(files: Files) -> Sequence[str]:
    with pytest.raises(ConfigError) as caught:
        WebConfigReloader(files.path)
    return [fault.replace(f"{files.directory}/", "") for fault in caught.value.faults]


def test_missing_files_are_all_reported(files: Files) -> None:
    files.path.write_text(
        "tls_server_config:\n  cert_file: a\n  key_file: b\n  client_ca_file: c\n"
        "  client_auth_type: VerifyClientCertIfGiven\n"
    )
    way_out = "cannot be read: No such file or directory; correct the path or the file's permissions"
    assert open_faults(files) == [
        f"web.yml:2: tls_server_config.cert_file: a {way_out}",
        f"web.yml:3: tls_server_config.key_file: b {way_out}",
        f"web.yml:4: tls_server_config.client_ca_file: c {way_out}",
    ]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("server.crt", b"none", "2: tls_server_config.cert_file: server.crt has no PEM certificate; give a chain"),
        ("server.key", b"none", "3: tls_server_config.key_file: server.key and its certificate cannot be used: "),
        *(("clients.crt", content, "has no PEM certificate; give those") for content in (b"", b"none", b"\xff")),
        (
            "clients.crt",
            b"\n" * 1_000_001,
            "5: tls_server_config.client_ca_file: clients.crt is larger than 1 MB; give",
        ),
    ],
)
def test_a_file_with_other_content_is_a_fault(files: Files, name: str, content: bytes, sentence: str) -> None:
    files.write(MUTUAL)
    (files.directory / name).write_bytes(content)
    assert sentence in open_faults(files)[0]


def test_a_key_with_a_passphrase_is_a_fault(files: Files) -> None:
    key = files.directory / "server.key"
    openssl("ec", "-in", key, "-out", files.directory / "locked", "-aes256", "-passout", "pass:x")
    (files.directory / "locked").replace(key)
    assert open_faults(files)[0].startswith("web.yml:3: tls_server_config.key_file: server.key is encrypted; give a")


def test_a_policy_of_the_system_is_a_fault(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ssl.SSLError("no cipher can be selected")

    monkeypatch.setattr(ssl.SSLContext, "set_ciphers", refuse)
    files.write("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]")
    assert open_faults(files)[0].startswith("web.yml:1: tls_server_config: rejected by this system's OpenSSL: ")


async def test_an_open_connection_outlives_a_renewal(served: Served) -> None:
    context = ssl.create_default_context(cafile=served.files.authority.cert)
    reader, writer = await asyncio.open_connection("localhost", served.server.port, ssl=context)
    for _ in range(2):
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b'"https"}')).startswith(b"HTTP/1.1 200")
        served.files.renew_server()
        served.poll()
    writer.close()


async def test_a_certificate_that_a_link_leads_to_is_renewed_with_the_link(files: Files) -> None:
    # as Kubernetes mounts secrets
    for version in ("old", "new"):
        (files.directory / version).mkdir()
        sign(files.authority, files.directory / version, "server", "DNS:localhost", subject=f"/CN={version}")
    for name in ("server.crt", "server.key"):
        (files.directory / name).unlink()
        (files.directory / name).symlink_to(f"data/{name}")
    (files.directory / "data").symlink_to("old")
    async with Served(files) as served:
        assert await served.subject() == "old"
        (files.directory / "other").symlink_to("new")
        (files.directory / "other").rename(files.directory / "data")
        served.poll()
        assert await served.subject() == "new"


async def test_a_change_is_taken_up_once_two_polls_agree_and_a_broken_one_never(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    counts = WebCounts()
    async with Served(files, counts) as served:
        key = files.directory / "server.key"
        good = key.read_bytes()
        key.write_bytes(files.client.key.read_bytes())
        for _ in range(3):
            served.poll()
        assert (await served.subject(), counts.config_reloaded) == ("server", False)
        (message,) = caplog.messages
        assert "server.key does not match the certificate" in message
        key.write_bytes(good)
        served.poll()
        assert counts.config_reloaded is True
        files.renew_server()
        served.web_config.poll()
        assert await served.subject() == "server"
        served.web_config.poll()
        assert await served.subject() == "renewed"


async def test_a_file_that_a_broken_change_names_is_looked_for(served: Served) -> None:
    served.files.path.write_text("tls_server_config: {cert_file: late.crt, key_file: late.key}\n")
    served.poll()
    assert not served.web_config._counts.config_reloaded
    sign(served.files.authority, served.files.directory, "late", "DNS:localhost")
    served.poll()
    assert served.web_config._counts.config_reloaded
    assert await served.subject() == "late"


async def test_tls_cannot_be_switched_off_while_running(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.files.path.write_text("rate_limit: {interval: 1s, burst: 9}\n")
    served.poll()
    assert "TLS cannot be switched on or off at run time; restart ibpulse" in caplog.text
    assert (await served.curl())[0] == 0


USERS = f"basic_auth_users: {{alice: $2y$04${'.' * 53}}}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty, so it would ask for no password and no TLS"),
        ("basic_auth_users:\n", "is empty, so it would ask for no password and no TLS"),
        ("http_server_config: {headers: {X-Frame-Options: deny}}\n", "no longer asks for a user or a certificate; res"),
        ("basic_auth_users: {}\nrate_limit: {interval: 1s, burst: 9}\n", "no longer asks for a user or a certificate"),
        (
            f"{USERS}rate_limit: {'[' * 5000}",
            "web.yml:2: more than 20 levels deep; correct the brackets or the indenta",
        ),
    ],
)
def test_a_change_that_cannot_be_used_leaves_the_last_users(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, sentence: str
) -> None:
    counts, path = WebCounts(), tmp_path / "web.yml"
    path.write_text(USERS)
    web_config = WebConfigReloader(path, counts)
    path.write_text(text)
    for _ in range(3):
        web_config.poll()
    assert list(web_config.rules.users) == ["alice"]
    assert counts.config_reloaded is False
    assert sum(sentence in record.getMessage() for record in caplog.records) == 1
    path.write_text(USERS.replace("alice", "bob"))
    for _ in range(2):
        web_config.poll()
    assert (list(web_config.rules.users), counts.config_reloaded) == (["bob"], True)


async def test_a_file_that_no_longer_asks_for_a_certificate_is_refused(files: Files) -> None:
    files.write(MUTUAL)
    async with Served(files) as served:
        files.write()
        served.poll()
        assert (await served.curl())[0] in BROKEN_OFF
        assert not served.web_config._counts.config_reloaded
        # passwords instead are as good
        files.write(rest=USERS)
        served.poll()
        assert served.web_config._counts.config_reloaded


def test_unequal_costs_of_hashes_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "web.yml"
    path.write_text(USERS)
    WebConfigReloader(path)
    assert not caplog.records
    path.write_text(USERS.replace("$04", "$12").replace("}\n", f", bob: $2y$04${'.' * 53}}}\n"))
    WebConfigReloader(path)
    (record,) = caplog.records
    assert (record.levelname, "the hashes have costs of 4 and 12" in record.getMessage()) == ("WARNING", True)


async def test_only_a_changed_rate_limit_starts_over(files: Files) -> None:
    files.write(rest="rate_limit: {interval: 1h, burst: 1}\n")
    web_config = WebConfigReloader(files.path)
    before = web_config.bucket
    files.renew_server()
    web_config.poll()
    web_config.poll()
    assert web_config.bucket is before
    files.write(rest="rate_limit: {interval: 1h, burst: 2}\n")
    web_config.poll()
    web_config.poll()
    assert web_config.bucket.burst == 2
