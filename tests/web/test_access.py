"""Users and passwords, and who may write, in front of the real application."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import bcrypt
import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ibpulse.core.http import access
from ibpulse.core.http.access import AccessControl, HostCheck, PasswordCheck, is_foreign_write, parse_basic
from ibpulse.core.http.web_config import TokenBucket, WebConfigReloader
from tests.names import forget_invalid_names
from tests.running import HANG_SECONDS
from tests.tables import for_each
from tests.turns import until
from tests.web.conftest import make_client
from tests.web.rings import Node

SECOND_NS = 1_000_000_000
LONG = "ü" * 40


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4)).decode()


USERS = {"alice": hashed("secret"), "bob": hashed(LONG), "ünal": hashed("ö")}


def write_web_config(directory: Path, text: str = "") -> WebConfigReloader:
    path = directory / "web.yml"
    users = "".join(f"  {name}: {stored}\n" for name, stored in USERS.items())
    path.write_text(f"basic_auth_users:\n{users}{text}", encoding="utf-8")
    return WebConfigReloader(path)


@pytest.fixture
async def client(node: Node, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with make_client(node.parts(web_config=write_web_config(tmp_path))) as made:
        yield made


async def say_user(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers with the user's name."""
    await JSONResponse({"user": scope.get(access.USER)})(scope, receive, send)


def controlled(web_config: WebConfigReloader | None, **client: object) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(AccessControl(say_user, web_config, 1000), **client)
    return httpx.AsyncClient(transport=transport, base_url="http://node")


async def test_every_path_but_the_probes_needs_the_password(client: httpx.AsyncClient) -> None:
    for path in ("/", "/metrics", "/api/v1/ports", "/api/docs", "/api/openapi.json", "/no-such-page"):
        assert (await client.get(path)).status_code == (await client.head(path)).status_code == 401
        status = (await client.get(path, auth=("alice", "secret"))).status_code
        assert status == (404 if path == "/no-such-page" else 200)
    for path in ("/-/healthy/", "/-/healthy/../../metrics", "//-/healthy", "/-/Healthy", "/-/healthy%2f"):
        request = httpx.Request("GET", "http://node/")
        request.url = request.url.copy_with(raw_path=path.encode())
        assert (await client.send(request)).status_code == 401


@pytest.mark.parametrize(
    ("user", "password", "status"),
    [
        ("ünal", "ö", 200),
        # bcrypt looks at 72 bytes
        ("bob", LONG[:36], 200),
        ("bob", LONG[:35], 401),
        ("alice", "Secret", 401),
        ("alice", "", 401),
        ("alice", "secret\0", 401),
        ("nobody", "secret", 401),
    ],
)
async def test_only_the_right_password_opens(client: httpx.AsyncClient, user: str, password: str, status: int) -> None:
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    for _ in range(2):
        answer = await client.get("/-/ready", headers={"Authorization": f"Basic {credentials}"})
        assert answer.status_code == 200
        answer = await client.get("/api/v1/ports", headers={"Authorization": f"Basic {credentials}"})
        assert answer.status_code == status


def test_a_password_may_hold_colons_and_other_authorizations_are_none() -> None:
    assert parse_basic(b"basic  " + base64.b64encode(b"alice:a:b")) == ("alice", b"a:b")
    for header in (b"", b"Basic", b"Basic !", b"Bearer YWxpY2U6c2VjcmV0", b"Basic YWxpY2U=", b"Basic //86YQ=="):
        assert parse_basic(header) is None


async def test_a_right_password_is_checked_once_and_again_after_a_time_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    checks: list[bytes] = []
    real = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda *given: checks.append(given[0]) or real(*given))
    check = PasswordCheck(lambda: now[0])
    for _ in range(3):
        assert await check.is_right(USERS, ("alice", b"secret"), "10.0.0.1")
        now[0] += access.REMEMBERED_SECONDS
    assert len(checks) == 1
    now[0] += 1.0
    assert await check.is_right(USERS, ("alice", b"secret"), "10.0.0.1")
    assert len(checks) == 2


async def test_a_changed_hash_is_checked_again() -> None:
    check = PasswordCheck()
    assert await check.is_right(USERS, ("alice", b"secret"), "10.0.0.1")
    assert not await check.is_right({"alice": hashed("other")}, ("alice", b"secret"), "10.0.0.1")
    assert not await check.is_right({"bob": USERS["bob"]}, ("alice", b"secret"), "10.0.0.1")


async def test_an_unknown_user_costs_as_much_as_the_dearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[bytes] = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda _, stored: costs.append(stored[:7]) or False)
    users = {"a": hashed("a"), "b": hashed("b").replace("$04$", "$09$")}
    await PasswordCheck().is_right(users, ("nobody", b"x"), "10.0.0.1")
    assert costs == [b"$2b$09$"]


def test_the_hash_of_an_unknown_user_is_one_that_bcrypt_works_on() -> None:
    assert not bcrypt.checkpw(b"", access._unmatchable({"a": hashed("a")}).encode())


async def test_remembered_logins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_REMEMBERED", 2)
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: True)
    check = PasswordCheck()
    for password in (b"1", b"2", b"3"):
        assert await check.is_right(USERS, ("alice", password), "10.0.0.1")
    assert len(check._remembered) == 2


class Held:
    """bcrypt that waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.checks = threading.Event(), 0
        self.niceness: list[int] = []
        self.passwords: list[bytes] = []
        monkeypatch.setattr(bcrypt, "checkpw", self.check)

    def check(self, password: bytes, _stored: bytes) -> bool:
        self.checks += 1
        self.passwords.append(password)
        self.niceness.append(os.nice(0))
        self.go.wait(HANG_SECONDS)
        return password == b"secret"


async def test_a_client_with_a_wrong_password_waits_behind_others(monkeypatch: pytest.MonkeyPatch) -> None:
    held, now, order = Held(monkeypatch), [0.0], []
    check = PasswordCheck(lambda: now[0])

    async def ask(password: bytes, client: str) -> None:
        await check.is_right(USERS, ("alice", password), client)
        order.append(client)

    async def ask_all() -> list[str]:
        order.clear()
        held.go.clear()
        names = ("running", "guesser", "guesser", "quiet")
        tasks = [asyncio.create_task(ask(b"%d" % number, client)) for number, client in enumerate(names)]
        for _ in range(4):
            await asyncio.sleep(0)
        held.go.set()
        await asyncio.gather(*tasks)
        return order[1:]

    held.go.set()
    assert not await check.is_right(USERS, ("alice", b"x"), "guesser")
    assert await ask_all() == ["quiet", "guesser", "guesser"]
    now[0] += access.WRONG_SECONDS
    assert await ask_all() == ["guesser", "quiet", "guesser"]


async def test_many_requests_with_one_password_share_one_check_even_if_one_hangs_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    check = PasswordCheck()
    waiting = [asyncio.create_task(check.is_right(USERS, ("alice", b"secret"), "10.0.0.1")) for _ in range(50)]
    await asyncio.sleep(0)
    waiting.pop(0).cancel()
    held.go.set()
    assert await asyncio.gather(*waiting) == [True] * 49
    assert held.checks == 1


async def test_checks_run_in_a_thread_of_low_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.go.set()
    await PasswordCheck().is_right(USERS, ("alice", b"secret"), "10.0.0.1")
    lowest = 19
    assert held.niceness == [min(os.nice(0) + access.NICENESS, lowest)]


async def test_a_full_queue_of_logins_gets_a_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_WAITING", 0)
    held = Held(monkeypatch)
    async with controlled(write_web_config(tmp_path)) as client:
        running = asyncio.create_task(client.get("/", auth=("alice", "guess")))
        await until(lambda: held.checks)
        answer = await client.get("/", auth=("alice", "secret"))
        held.go.set()
        await running
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"] == "/api/docs#too-many-logins"


def test_the_bucket_lets_a_burst_pass_and_then_one_each_interval() -> None:
    bucket = TokenBucket(SECOND_NS // 2, 3)
    assert [bucket.take(SECOND_NS) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(SECOND_NS * 2) for _ in range(3)] == [True, True, False]
    assert [bucket.take(SECOND_NS * 99) for _ in range(4)] == [True, True, True, False]


async def test_requests_over_the_rate_are_refused_but_never_probes(tmp_path: Path) -> None:
    async with controlled(write_web_config(tmp_path, "rate_limit: {interval: 1h, burst: 2}\n")) as client:
        answers = [await client.get("/", auth=("alice", "secret")) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[-1].headers["retry-after"] == "1"
        assert (await client.get("/-/ready")).status_code == 200


@for_each(
    [
        ("POST", {}, False),
        ("POST", {"sec-fetch-site": "same-origin"}, False),
        ("POST", {"sec-fetch-site": "none"}, False),
        ("POST", {"sec-fetch-site": "cross-site"}, True),
        ("DELETE", {"sec-fetch-site": "same-site"}, True),
        ("GET", {"sec-fetch-site": "cross-site"}, False),
        ("POST", {"origin": "https://Node:10055", "host": "node:10055"}, False),
        ("POST", {"origin": "http://node:10055", "host": "node:10055"}, True),
        ("POST", {"origin": "https://evil.example", "host": "node:10055"}, True),
        ("POST", {"origin": "null", "host": "node:10055"}, True),
        ("PUT", {"origin": "https://evil.example"}, True),
    ]
)
def test_browsers_write_only_from_our_own_pages(method: str, headers: dict[str, str], foreign: bool) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert is_foreign_write(method, "https", raw) is foreign


async def test_every_answer_has_the_configured_headers(node: Node, tmp_path: Path) -> None:
    text = (
        "http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=60\n    X-Frame-Options: deny\n"
        "    Content-Security-Policy: upgrade-insecure-requests\n    X-Content-Type-Options: nosniff\n"
    )
    async with make_client(node.parts(web_config=write_web_config(tmp_path, text))) as client:
        answers = [await client.get("/", auth=("alice", "secret")), await client.get("/"), await client.get("/-/ready")]
    for answer in answers:
        assert answer.headers["strict-transport-security"] == "max-age=60"
        assert answer.headers["x-frame-options"] == "deny"
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        policies = answer.headers.get_list("content-security-policy")
        assert len(policies) == 2
        assert "upgrade-insecure-requests" in policies
        assert any("frame-ancestors 'none'" in policy for policy in policies)


LOOPBACK = ["localhost", "LOCALHOST:10055", "localhost.:1", "127.9.8.7:10055", "[::1]", "[::ffff:127.0.0.1]:1"]
FOREIGN = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "a:b", "", "[::1"]
# an address in digits, of which no name server is asked
MAPPED = pytest.param("::ffff:127.0.0.1", marks=pytest.mark.real("network"))
ADDRESSES = ["10.0.0.7", "10.0.0.7:10055", "[2001:db8::7]:1", "0.0.0.0", "[::ffff:10.0.0.7]"]


def served(check: HostCheck, hosts: Sequence[str]) -> list[str]:
    """Those of the hosts that requests may ask for."""
    return [host for host in hosts if check.find_refusal([(b"host", host.encode())]) is None]


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1", "localhost", MAPPED])
def test_a_server_on_a_loopback_address_serves_loopback_names_only(listen: str) -> None:
    assert served(HostCheck(listen), [*LOOPBACK, *FOREIGN, *ADDRESSES]) == LOOPBACK


# of addresses in digits no name server is asked
@pytest.mark.real("network")
@pytest.mark.parametrize("listen", ["", "0.0.0.0", "::", "10.0.0.7", "no.such.host.invalid"])
def test_any_other_server_serves_every_name(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_invalid_names(monkeypatch)
    assert served(HostCheck(listen), [*LOOPBACK, *FOREIGN, *ADDRESSES]) == [*LOOPBACK, *FOREIGN, *ADDRESSES]


def test_configured_names_are_served_whatever_their_case_and_port() -> None:
    names = ["gpu7", "GPU7:443", "gpu7.", "ibpulse.example.org"]
    assert served(HostCheck("127.0.0.1", ["gpu7", "IBpulse.example.org"]), [*names, *FOREIGN]) == names
    # a server that listens elsewhere has its addresses, too
    assert served(HostCheck("", ["gpu7"]), ["gpu7", *ADDRESSES, *FOREIGN]) == ["gpu7", *ADDRESSES]
    assert served(HostCheck("127.0.0.1", ["*"]), FOREIGN) == FOREIGN
    every_header = [(b"accept", b"x"), (b"host", b"localhost"), (b"host", b"evil.example")]
    assert HostCheck("127.0.0.1").find_refusal(every_header) is not None
