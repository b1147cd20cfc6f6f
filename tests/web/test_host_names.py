"""The host names that a server answers to: names that somebody rebound to its address are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import httpx
import pytest

from ibpulse.agent.web.app import create_app
from ibpulse.core.http.access import HostCheck
from tests.names import forget_invalid_names
from tests.web.rings import Node

LOOPBACK = ["localhost", "LOCALHOST:10055", "localhost.:1", "127.0.0.1", "127.9.8.7:10055", "[::1]", "[::1]:10055"]
FOREIGN = ["evil.example", "evil.example:10055", "127.0.0.1.evil.example", "localhost.evil.example", "a:b", "", "[::1"]
# an address in digits, of which no name server is asked
MAPPED = pytest.param("::ffff:127.0.0.1", marks=pytest.mark.real("network"))
LISTENING = ["127.0.0.1", "127.0.0.9", "::1", "localhost", MAPPED]
ADDRESSES = ["10.0.0.7", "10.0.0.7:10055", "[2001:db8::7]:1", "0.0.0.0", "[fe80::1]"]


def served(check: HostCheck, hosts: Sequence[str]) -> list[str]:
    """Those of the hosts that requests may ask for."""
    return [host for host in hosts if check.find_refusal([(b"host", host.encode())]) is None]


@pytest.mark.parametrize("listen", LISTENING)
def test_a_server_on_a_loopback_address_serves_loopback_names_only(listen: str) -> None:
    check = HostCheck(listen)
    assert served(check, [*LOOPBACK, "[::ffff:127.0.0.1]:1"]) == [*LOOPBACK, "[::ffff:127.0.0.1]:1"]
    assert served(check, [*FOREIGN, *ADDRESSES, "[::ffff:10.0.0.7]"]) == []


# of addresses in digits no name server is asked
@pytest.mark.real("network")
@pytest.mark.parametrize("listen", ["", "0.0.0.0", "::", "10.0.0.7", "no.such.host.invalid"])
def test_any_other_server_serves_every_name(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_invalid_names(monkeypatch)
    assert served(HostCheck(listen), [*LOOPBACK, *FOREIGN, *ADDRESSES]) == [*LOOPBACK, *FOREIGN, *ADDRESSES]


def test_configured_names_are_served_whatever_their_case_and_port() -> None:
    names = ["gpu7", "GPU7:443", "gpu7.", "ibpulse.example.org"]
    assert served(HostCheck("127.0.0.1", ["gpu7", "IBpulse.example.org"]), [*names, *FOREIGN]) == names


def test_configured_names_hold_on_every_address_next_to_addresses() -> None:
    assert served(HostCheck("", ["gpu7"]), ["gpu7", *LOOPBACK, *ADDRESSES]) == ["gpu7", *LOOPBACK, *ADDRESSES]
    assert served(HostCheck("", ["gpu7"]), FOREIGN) == []


def test_a_star_serves_every_name() -> None:
    assert served(HostCheck("127.0.0.1", ["*"]), FOREIGN) == FOREIGN


def test_every_header_counts_and_none_is_no_browser() -> None:
    check = HostCheck("127.0.0.1")
    assert check.find_refusal([(b"accept", b"evil.example")]) is None
    assert check.find_refusal([(b"host", b"localhost"), (b"host", b"evil.example")]) is not None


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/ports", "/api/v1/window?last=1s", "/static/live.js", "/x"])
async def test_a_refusal_is_a_problem_document_that_says_the_way_out(node: Node, path: str) -> None:
    app = create_app(replace(node.parts(), hosts=HostCheck("127.0.0.1")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://evil.example") as client:
        answer = await client.get(path)
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    document = answer.json()
    assert (document["type"], document["title"]) == ("/api/docs#wrong-host", "Host name not served")
    assert document["detail"] == (
        "The request is for the host 'evil.example', which is not served here. Use localhost or the address of this "
        "server, or add the name to web.hosts."
    )


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
async def test_the_probes_always_answer(node: Node, path: str) -> None:
    app = create_app(replace(node.parts(), hosts=HostCheck("127.0.0.1")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://evil.example") as client:
        assert (await client.get(path)).status_code == 200


async def test_a_write_from_a_page_of_a_rebound_name_is_refused(node: Node) -> None:
    app = create_app(replace(node.parts(), hosts=HostCheck("127.0.0.1")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://evil.example") as client:
        answer = await client.post("/api/v1/captures", headers={"origin": "http://evil.example"}, json={})
    assert answer.status_code == 421
