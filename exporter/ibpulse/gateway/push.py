"""Pushes alerts about stalled jobs to Alertmanagers and webhooks, each of which is told until it accepts.

Alertmanager merges alerts with the same labels, so two gateways and the rule of Prometheus make one alert. An alert
that no gateway renews ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonError
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.base.units import SECOND_NS
from ibpulse.core.client.transport import Advice, HttpPeer, NodeAccess
from ibpulse.gateway.nodes.discovery import NodeConfigFile

log = logging.getLogger(__name__)

STALLED, SEVERITY = "IBPulseTrafficStalled", "warning"
"""The name and the severity of the alert, as in the rule of Prometheus."""
ALERTS_PATH = "/api/v2/alerts"
RENEW_SECONDS = 30.0
RETRY_SECONDS = 2.0
POST_SECONDS = 5.0
# without renewal, an alert ends after this time; one that ended is told for as long
LASTING_NS = 180 * SECOND_NS
ACCEPTED, FAILED = "accepted", "failed"
OUTCOMES = (ACCEPTED, FAILED)
_ADVICE = Advice("is the one in its configuration file right?", running="is it running?")


@dataclass(frozen=True, slots=True)
class PushOptions:
    """The servers to tell, as URLs, with the files of their passwords; and the labels that every alert has."""

    alertmanagers: Sequence[str] = ()
    alertmanager_config: Path | None = None
    webhooks: Sequence[str] = ()
    webhook_config: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PushedAlert:
    """An alert about a job; `ended_ns` is None while it fires."""

    job_id: str
    annotations: Mapping[str, str]
    started_ns: int
    ended_ns: int | None = None

    def document(self, labels: Mapping[str, str], now_ns: int) -> dict[str, Any]:
        """The alert as Alertmanager's API takes it."""
        ends_ns = now_ns + LASTING_NS if self.ended_ns is None else self.ended_ns
        return {
            "labels": {"alertname": STALLED, "severity": SEVERITY, "job_id": self.job_id, **labels},
            "annotations": dict(self.annotations),
            "startsAt": format_rfc3339(self.started_ns),
            "endsAt": format_rfc3339(ends_ns),
        }


class Receiver:
    """A server that is told of the alerts at each change, again every `RENEW_SECONDS`, and until it accepts."""

    def __init__(self, url: str, config: NodeConfigFile, make_peer: Callable[[str, NodeAccess], HttpPeer]) -> None:
        # the path of a webhook may be a secret
        self.name = urlsplit(url).netloc
        self.outcomes: Counter[str] = Counter()
        self.problem = ""
        self.news = asyncio.Event()
        self._url, self._config, self._make_peer = url, config, make_peer
        self._access, self._peer = config.access, self._connect(config.access)

    def _connect(self, access: NodeAccess) -> HttpPeer:
        return self._make_peer(self._url, replace(access, advice=_ADVICE))

    async def tell(self, content: bytes) -> bool:
        """Send the alerts; whether it accepted them."""
        if self._config.access is not self._access:
            await self._peer.close()
            self._access, self._peer = self._config.access, self._connect(self._config.access)
        problem = ""
        try:
            await self._peer.post("", content, seconds=POST_SECONDS)
        except DaemonError as error:
            # any status of success
            problem = "" if 200 <= error.status < 300 else str(error)
        self.outcomes[FAILED if problem else ACCEPTED] += 1
        if problem and problem != self.problem:
            log.warning("alerts are not pushed to %s: %s", self.name, problem)
        elif self.problem and not problem:
            log.info("alerts are pushed to %s again", self.name)
        self.problem = problem
        return not problem

    async def close(self) -> None:
        """Close the connections."""
        await self._peer.close()


class AlertPush:
    """The alerts that fire, and those that ended lately, for all receivers; none delays another."""

    def __init__(
        self,
        options: PushOptions,
        errors: InternalErrors | None = None,
        clock: Clock = time,
        make_peer: Callable[[str, NodeAccess], HttpPeer] = HttpPeer,
    ) -> None:
        """Read the files of passwords.

        Raises:
            ConfigError: one of them is invalid.
        """
        self._labels, self._clock = options.labels, clock
        self._errors = errors or InternalErrors(parts=GATEWAY_PARTS)
        alertmanagers, webhooks = (
            NodeConfigFile(path) for path in (options.alertmanager_config, options.webhook_config)
        )
        self._configs = [config for config in (alertmanagers, webhooks) if config.path]
        places = [(url.rstrip("/") + ALERTS_PATH, alertmanagers) for url in options.alertmanagers]
        places += [(url, webhooks) for url in options.webhooks]
        self.receivers = tuple(Receiver(url, config, make_peer) for url, config in places)
        self._threads = DaemonThreads(1, "push")
        # by job, because Alertmanager knows alerts by their labels
        self._alerts: dict[str, PushedAlert] = {}

    def fire(self, alerts: Iterable[PushedAlert]) -> None:
        """Take over the alerts that fire now; those that no longer do have ended."""
        now_ns = self._clock.time_ns()
        old = self._alerts
        ended = {job: each if each.ended_ns else replace(each, ended_ns=now_ns) for job, each in old.items()}
        kept = {job: each for job, each in ended.items() if now_ns - (each.ended_ns or 0) < LASTING_NS}
        self._alerts = kept | {each.job_id: each for each in alerts}
        if any(old.get(job) != each for job, each in self._alerts.items()):
            for receiver in self.receivers:
                receiver.news.set()

    async def run(self) -> None:
        """Tell the receivers, forever, even if there are none."""
        try:
            await asyncio.gather(asyncio.Event().wait(), *map(self._run, self.receivers))
        finally:
            await asyncio.gather(*(receiver.close() for receiver in self.receivers))

    async def _run(self, receiver: Receiver) -> None:
        while True:
            accepted = False
            receiver.news.clear()
            with self._errors.boundary("push", receiver.name):
                accepted = await self._tell(receiver)
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS if accepted else RETRY_SECONDS):
                    await receiver.news.wait()

    async def _tell(self, receiver: Receiver) -> bool:
        now_ns = self._clock.time_ns()
        documents = [each.document(self._labels, now_ns) for each in self._alerts.values()]
        if not documents:
            return True
        for config in self._configs:
            await asyncio.get_running_loop().run_in_executor(self._threads, config.poll)
        return await receiver.tell(orjson.dumps(documents))
