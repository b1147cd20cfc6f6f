"""TLS on real sockets: who gets in, with which certificate, and what cannot be used."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.core.http import server
from ibpulse.core.http.reload import WebConfigReloader
from ibpulse.core.http.web_config import has_allowed_name
from tests.turns import until
from tests.web.certificates import openssl, sign
from tests.web.served import ASK, BROKEN_OFF, MUTUAL, Files, Served

# one program makes the certificates, the other speaks TLS as clients do
pytestmark = [pytest.mark.real("process"), pytest.mark.needs("openssl", "curl")]


async def test_curl_gets_an_answer_over_tls(served: Served) -> None:
    assert await served.curl() == (0, '{"user":null,"scheme":"https"}')


async def test_tls_1_1_is_not_spoken_and_1_2_and_1_3_are(served: Served) -> None:
    assert (await served.curl("--tls-max", "1.2"))[0] == 0
    assert (await served.curl("--tlsv1.3"))[0] == 0
    weak = ("--tls-max", "1.1", "--tlsv1.0", "--ciphers", "DEFAULT@SECLEVEL=0")
    assert (await served.curl(*weak))[0] == 35


async def test_http_1_1_is_agreed_on(served: Served) -> None:
    context = ssl.create_default_context(cafile=served.files.authority.cert)
    context.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection("localhost", served.server.port, ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()


async def test_plain_http_on_the_tls_port_is_closed_and_harms_nobody(served: Served, caplog: Any) -> None:
    for noise in (ASK, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), bytes(range(256)) * 8, b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(noise)
        writer.write_eof()
        assert b"HTTP/1.1 200" not in await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert (await served.curl())[0] == 0
    assert not caplog.records


async def test_a_client_that_never_shakes_hands_is_given_up(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.05)
    async with Served(files) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        try:
            assert await asyncio.wait_for(reader.read(), 5) == b""
        except ConnectionResetError:
            pass
        writer.close()


async def test_stopping_ends_a_handshake_under_way(files: Files) -> None:
    async with Served(files) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        await until(lambda: served.server._server._listener._handshakes)
        await served.server.stop()
        writer.close()


async def test_a_client_without_a_certificate_does_not_get_in(files: Files) -> None:
    files.write(MUTUAL)
    async with Served(files) as served:
        assert (await served.curl())[0] in BROKEN_OFF
        assert (await served.curl(*files.stranger.curl()))[0] in BROKEN_OFF


async def test_the_common_name_of_the_certificate_is_the_user(files: Files) -> None:
    files.write(MUTUAL)
    async with Served(files) as served:
        assert await served.curl(*files.client.curl()) == (0, '{"user":"client","scheme":"https"}')
        assert await served.curl(*files.client.curl(), "--tls-max", "1.2") == (0, '{"user":"client","scheme":"https"}')


async def test_without_a_common_name_the_first_alternative_name_is_the_user(files: Files) -> None:
    files.write(MUTUAL)
    nameless = sign(files.clients, files.directory, "nameless", "IP:::1,DNS:scraper", subject="/O=lab")
    async with Served(files) as served:
        assert await served.curl(*nameless.curl()) == (0, '{"user":"::1","scheme":"https"}')


async def test_a_certificate_may_be_left_out_where_it_is_verified_only_if_given(files: Files) -> None:
    files.write(MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))
    async with Served(files) as served:
        assert await served.curl() == (0, '{"user":null,"scheme":"https"}')
        assert await served.curl(*files.client.curl()) == (0, '{"user":"client","scheme":"https"}')
        assert (await served.curl(*files.stranger.curl()))[0] in BROKEN_OFF


@pytest.mark.parametrize("name", ["scraper", "::1", "a@b.example", "spiffe://x/y"])
async def test_a_certificate_with_an_allowed_name_gets_in(files: Files, name: str) -> None:
    files.write(f'{MUTUAL}\n  client_allowed_sans: ["{name}", other]')
    async with Served(files) as served:
        assert (await served.curl(*files.client.curl()))[0] == 0


async def test_a_certificate_without_an_allowed_name_does_not_get_in(files: Files) -> None:
    # the subject does not count, as in Go
    files.write(f"{MUTUAL}\n  client_allowed_sans: [client, other]")
    async with Served(files) as served:
        status, said = await served.curl(*files.client.curl())
        assert status in BROKEN_OFF
        assert "user" not in said


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


async def test_suites_of_tls_1_3_alone_leave_tls_1_3_alone(files: Files) -> None:
    files.write("cipher_suites: [TLS_AES_128_GCM_SHA256]\n  prefer_server_cipher_suites: false")
    async with Served(files) as served:
        assert (await served.curl("--tls-max", "1.2"))[0] == 35
        assert (await served.curl())[0] == 0


async def test_certificate_key_and_authority_may_stand_in_the_file(files: Files) -> None:
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


def test_files_that_are_not_there_are_told_at_once(files: Files) -> None:
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
        (
            "server.crt",
            b"none",
            "web.yml:2: tls_server_config.cert_file: server.crt has no PEM certificate; give a chain",
        ),
        (
            "server.key",
            b"none",
            "web.yml:3: tls_server_config.key_file: server.key and its certificate cannot be used: ",
        ),
        (
            "clients.crt",
            b"",
            "web.yml:5: tls_server_config.client_ca_file: clients.crt has no PEM certificate; give those",
        ),
        (
            "clients.crt",
            b"none",
            "web.yml:5: tls_server_config.client_ca_file: clients.crt has no PEM certificate; give those",
        ),
        (
            "clients.crt",
            b"\xff",
            "web.yml:5: tls_server_config.client_ca_file: clients.crt has no PEM certificate; give those",
        ),
        (
            "clients.crt",
            b"\n" * 1_000_001,
            "web.yml:5: tls_server_config.client_ca_file: clients.crt is larger than 1 MB; give only",
        ),
    ],
)
def test_a_file_that_holds_something_else_is_a_fault(files: Files, name: str, content: bytes, sentence: str) -> None:
    files.write(MUTUAL)
    (files.directory / name).write_bytes(content)
    assert open_faults(files)[0].startswith(sentence)


def test_a_key_with_a_passphrase_is_a_fault_and_nobody_is_asked_for_it(files: Files) -> None:
    key = files.directory / "server.key"
    openssl("ec", "-in", key, "-out", files.directory / "locked", "-aes256", "-passout", "pass:x")
    (files.directory / "locked").replace(key)
    assert open_faults(files) == [
        "web.yml:3: tls_server_config.key_file: server.key is encrypted; give a key without a passphrase, readable "
        "only by this user"
    ]


def test_a_key_of_another_kind_does_not_belong_to_the_certificate(files: Files) -> None:
    openssl("genrsa", "-out", files.directory / "server.key", 2048)
    assert "server.key does not match the certificate" in open_faults(files)[0]


def test_what_the_system_forbids_is_a_fault(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ssl.SSLError("no cipher can be selected")

    monkeypatch.setattr(ssl.SSLContext, "set_ciphers", refuse)
    files.write("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]")
    assert open_faults(files)[0].startswith("web.yml:1: tls_server_config: rejected by this system's OpenSSL: ")
