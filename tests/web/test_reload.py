"""What a change of the web configuration or its certificates does while the server runs."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.http.reload import WebConfigReloader
from ibpulse.core.metrics.web import WebCounts
from tests.turns import until
from tests.web.certificates import sign
from tests.web.served import BROKEN_OFF, MUTUAL, Files, Served

# one program makes the certificates, the other speaks TLS as clients do
pytestmark = [pytest.mark.real("process"), pytest.mark.needs("openssl", "curl")]


async def test_a_renewed_certificate_is_shown_to_new_connections(served: Served) -> None:
    assert await served.subject() == "server"
    served.files.renew_server()
    served.poll()
    assert await served.subject() == "renewed"


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


async def test_a_change_is_taken_up_once_two_polls_agree(served: Served) -> None:
    served.files.renew_server()
    served.web_config.poll()
    assert await served.subject() == "server"
    served.web_config.poll()
    assert await served.subject() == "renewed"


async def test_a_changed_policy_holds_for_new_connections(served: Served) -> None:
    served.files.write(MUTUAL)
    served.poll()
    assert (await served.curl())[0] in BROKEN_OFF
    assert (await served.curl(*served.files.client.curl()))[0] == 0


async def test_a_broken_certificate_leaves_the_last_good_one_and_is_told_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    counts = WebCounts()
    async with Served(files, counts) as served:
        assert counts.config_reloaded is True
        key = files.directory / "server.key"
        good = key.read_bytes()
        key.write_bytes(files.client.key.read_bytes())
        for _ in range(3):
            served.poll()
        assert await served.subject() == "server"
        assert counts.config_reloaded is False
        assert [record.getMessage().replace(f"{files.directory}/", "") for record in caplog.records] == [
            "web configuration not reloaded: web.yml:3: tls_server_config.key_file: server.key does not match "
            "the certificate; give the certificate's own key"
        ]
        key.write_bytes(good)
        served.poll()
        assert counts.config_reloaded is True


async def test_a_file_that_a_broken_change_names_is_looked_for(served: Served) -> None:
    served.files.path.write_text("tls_server_config: {cert_file: late.crt, key_file: late.key}\n")
    served.poll()
    assert not served.web_config._counts.config_reloaded
    sign(served.files.authority, served.files.directory, "late", "DNS:localhost")
    served.poll()
    assert served.web_config._counts.config_reloaded
    assert await served.subject() == "late"


async def test_a_file_that_vanishes_changes_nothing(served: Served) -> None:
    served.files.path.unlink()
    served.poll()
    assert not served.web_config._counts.config_reloaded
    assert await served.subject() == "server"


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
    hashes = {name: f"$2y${cost:02d}${'.' * 53}" for name, cost in (("alice", 10), ("bob", 4), ("carol", 12))}
    path.write_text("basic_auth_users:\n" + "".join(f"  {name}: {hashed}\n" for name, hashed in hashes.items()))
    WebConfigReloader(path)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"{path}: basic_auth_users: the hashes have costs of 4, 10 and 12, so the time of a refusal tells the users of "
        "the cheaper ones from names that do not exist; use one cost for all"
    )
    caplog.clear()
    path.write_text(USERS + "  # one cost\n")
    WebConfigReloader(path)
    assert not caplog.records


async def test_the_rate_limit_starts_anew_only_when_it_is_changed(files: Files) -> None:
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


async def test_the_files_are_polled(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ibpulse.core.http.reload.POLL_SECONDS", 0.01)
    web_config = WebConfigReloader(files.path)
    first = web_config.rules
    watching = asyncio.create_task(web_config.watch(InternalErrors()))
    files.write("min_version: TLS13")
    await until(lambda: web_config.rules is not first)
    watching.cancel()
