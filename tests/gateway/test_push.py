"""Alerts on their way to Alertmanagers and webhooks: content, renewal, end, and receivers that fail."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.base.instants import parse_rfc3339
from ibpulse.core.client.transport import HttpPeer
from ibpulse.gateway import push
from ibpulse.gateway.push import LASTING_NS, RENEW_SECONDS, AlertPush, PushedAlert, PushOptions
from tests.fleet.daemons import BEGIN_NS, LOOP_CLOCK, now_ns
from tests.gateway.gateways import Gateway
from tests.loop_clock import pause
from tests.running import Metrics

AM, OTHER, HOOK = "http://am1:9093/prefix", "http://am2", "http://hook:1/secret?x=1"
URLS = (f"{AM}/api/v2/alerts", f"{OTHER}/api/v2/alerts", HOOK)


@dataclass
class Servers:
    """What each URL was sent, with the time in seconds; `answers` are the statuses of some of them, or exceptions."""

    got: list[tuple[float, str, Any]] = field(default_factory=list)
    authorized: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Callable[[], int]] = field(default_factory=dict)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = str(request.url)
        self.got.append((asyncio.get_running_loop().time(), url, json.loads(await request.aread())))
        self.authorized[url] = request.headers.get("Authorization", "")
        return httpx.Response(self.answers.get(url, lambda: 200)(), stream=httpx.ByteStream(b""))

    async def aclose(self) -> None:
        return

    def times(self, url: str) -> list[float]:
        return [time for time, to, _ in self.got if to == url]


def refuse() -> int:
    raise httpx.ConnectError("") from ConnectionRefusedError()


@asynccontextmanager
async def pushing(options: PushOptions) -> AsyncIterator[tuple[AlertPush, Servers]]:
    servers = Servers()
    made = AlertPush(options, clock=LOOP_CLOCK, make_peer=partial(HttpPeer, make_transport=lambda **_: servers))
    task = asyncio.create_task(made.run())
    await pause(1)
    yield made, servers
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


EVERYONE = PushOptions(alertmanagers=(AM, OTHER), webhooks=(HOOK,), labels={"cluster": "a"})
STALL = PushedAlert("42", {"summary": "node-1 stopped first"}, BEGIN_NS)


async def test_an_alert_is_the_same_for_everyone_and_lasts_three_minutes_from_each_request() -> None:
    async with pushing(EVERYONE) as (made, servers):
        assert servers.got == []
        made.fire([STALL])
        await pause(RENEW_SECONDS + 1)
        assert [servers.times(url) for url in URLS] == [[1.0, 1.0 + RENEW_SECONDS]] * 3
        for time, _, sent in servers.got:
            (alert,) = sent
            assert alert["labels"] == {
                "alertname": "IBPulseTrafficStalled", "severity": "warning", "job_id": "42", "cluster": "a"
            }  # fmt: skip
            assert alert["annotations"] == {"summary": "node-1 stopped first"}
            assert parse_rfc3339(alert["startsAt"]) == pytest.approx(BEGIN_NS, abs=1e6)
            assert parse_rfc3339(alert["endsAt"]) == pytest.approx(BEGIN_NS + time * 1e9 + LASTING_NS, abs=1e6)


async def test_an_unchanged_alert_waits_for_its_renewal_and_other_words_go_at_once() -> None:
    async with pushing(PushOptions(alertmanagers=(AM,))) as (made, servers):
        for _ in range(10):
            made.fire([PushedAlert("42", {"summary": "first"}, BEGIN_NS)])
            await pause(1)
        made.fire([PushedAlert("42", {"summary": "second"}, BEGIN_NS)])
        await pause(1)
        assert [(time, sent[0]["annotations"]["summary"]) for time, _, sent in servers.got] == [
            (1.0, "first"), (11.0, "second")
        ]  # fmt: skip


async def test_an_alert_that_ended_is_told_at_once_and_forgotten_after_three_minutes() -> None:
    async with pushing(PushOptions(alertmanagers=(AM,))) as (made, servers):
        made.fire([STALL])
        await pause(5)
        made.fire([])
        ended_ns = now_ns()
        await pause(1)
        assert servers.times(URLS[0]) == [1.0, 6.0]
        for _ in range(25):
            made.fire([])
            await pause(10)
        assert {parse_rfc3339(sent[0]["endsAt"]) // 10**6 for _, _, sent in servers.got[1:]} == {ended_ns // 10**6}
        assert 6 + LASTING_NS / 1e9 - RENEW_SECONDS <= servers.times(URLS[0])[-1] <= 6 + LASTING_NS / 1e9


async def test_a_job_that_stalls_again_has_one_alert() -> None:
    async with pushing(PushOptions(alertmanagers=(AM,))) as (made, servers):
        for alerts in ([STALL], [], [PushedAlert("42", {}, BEGIN_NS + 10**9)]):
            made.fire(alerts)
            await pause(1)
        assert [len(sent) for _, _, sent in servers.got] == [1, 1, 1]
        assert servers.got[-1][2][0]["endsAt"] > servers.got[1][2][0]["endsAt"]


@pytest.mark.parametrize("answer", [refuse, lambda: 500, lambda: 302])
async def test_a_receiver_that_fails_for_a_minute_is_told_later_and_delays_no_other(
    answer: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with pushing(EVERYONE) as (made, servers):
        servers.answers[URLS[0]] = answer
        made.fire([STALL])
        await pause(40)
        made.fire([])
        await pause(20)
        assert [time for time in servers.times(HOOK) if time < 42] == [1.0, 31.0, 41.0]
        del servers.answers[URLS[0]]
        await pause(3)
        (*_, last) = (sent for _, url, sent in servers.got if url == URLS[0])
        assert parse_rfc3339(last[0]["endsAt"]) == pytest.approx(BEGIN_NS + 41e9, abs=1e6)
        assert caplog.text.count("alerts are not pushed to am1:9093") == 1
        assert caplog.text.count("alerts are pushed to am1:9093 again") == 1
        outcomes = made.receivers[0].outcomes
        assert (outcomes["accepted"], outcomes["failed"] > 20) == (1, True)


async def test_receivers_on_one_host_count_as_one_and_204_is_accepted(tmp_path: Path) -> None:
    one, two = f"{HOOK}&a", f"{HOOK}&b"
    async with pushing(PushOptions(webhooks=(one, two))) as (made, servers):
        servers.answers |= {one: lambda: 204, two: lambda: 500}
        made.fire([STALL])
        await pause(1)
        gateway = Gateway(tmp_path, push=made)
        counts = Metrics.parse((await gateway.client.get("/metrics")).text).find("ibpulse_gateway_pushes_total")
        assert {dict(labels)["outcome"]: count for labels, count in counts.items()} == {"accepted": 1, "failed": 1}
        await gateway.close()


async def test_each_kind_of_receiver_gets_only_its_own_password(tmp_path: Path) -> None:
    for name in ("am", "hook"):
        (tmp_path / name).write_text(f"basic_auth: {{username: {name}, password: old}}\n")
    options = PushOptions((AM,), tmp_path / "am", (HOOK,), tmp_path / "hook")
    async with pushing(options) as (made, servers):
        made.fire([STALL])
        await pause(1)
        (tmp_path / "am").write_text("basic_auth: {username: am, password: another}\n")
        await pause(RENEW_SECONDS)
        assert {url: base64.b64decode(text.removeprefix("Basic ")) for url, text in servers.authorized.items()} == {
            URLS[0]: b"am:another", HOOK: b"hook:old"
        }  # fmt: skip
        assert made.receivers[0].outcomes["accepted"] == 2


async def test_without_receivers_it_waits_like_the_other_parts_of_the_gateway() -> None:
    running = asyncio.create_task(AlertPush(PushOptions()).run())
    await pause(100)
    assert not running.done()
    running.cancel()


def test_a_file_without_a_password_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"am\.yml"):
        AlertPush(PushOptions((AM,), tmp_path / "am.yml"))
    assert push.STALLED in (Path("docs/runbooks") / f"{push.STALLED}.md").read_text()
