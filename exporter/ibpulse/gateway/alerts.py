"""Alertmanager's notifications to the gateway: firing alerts take captures on all nodes of a job, or on one node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from starlette.responses import Response

from ibpulse.base.clocks import Clock
from ibpulse.base.internal_errors import Occurrences
from ibpulse.base.text import first_names
from ibpulse.base.units import SECOND_NS
from ibpulse.core.captures import COOLDOWN_NS, NODE_LABELS, Alert, Cooldown, host_of, join_labels
from ibpulse.core.defaults import HISTORY_NS
from ibpulse.core.http.problems import ProblemError, operation
from ibpulse.core.http.requests import (
    MAX_LABELS,
    REFUSALS,
    Notification,
    check_writer,
    json_response,
    read_alerts,
    read_body,
    request_schema,
)
from ibpulse.gateway.captures import (
    CAPTURES,
    MIN_NS,
    WantedCapture,
    capture_job,
    describe_pending,
    missing_nodes_text,
)
from ibpulse.gateway.jobs import FleetJob, choose_job, list_jobs
from ibpulse.gateway.nodes.requests import Node
from ibpulse.gateway.nodes.targets import is_address
from ibpulse.gateway.parts import GatewayCaptures, GatewayParts

log = logging.getLogger(__name__)

PATH = f"{CAPTURES}/alertmanager"
JOB_LABEL, NAME_LABEL = "job_id", "alertname"
# an alert that began earlier saves the samples around now
REACH_NS = 120 * SECOND_NS
MAX_REASON = 200
NAMED_NODES, LOGGED_PROBLEMS = 5, 3
NO_SUBJECT = f"it names neither a job ({JOB_LABEL}) nor a node ({', '.join(NODE_LABELS)})"


class SubjectError(Exception):
    """An alert does not say which job or node to capture; the message is a sentence."""


class NodeNames:
    """Finds nodes by what the labels of alerts say: a name, an address with its port, or a host."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._exact, self._hosts, self._short = (defaultdict[str, set[str]](set) for _ in range(3))
        for name, node in self._nodes.items():
            place = urlsplit(node.target.url)
            self._exact[name.lower()].add(name)
            self._exact[place.netloc.lower()].add(name)
            for host in (name.lower(), (place.hostname or "").lower()):
                self._hosts[host].add(name)
                if _short(host) != host:
                    self._short[_short(host)].add(name)

    def find(self, labels: Mapping[str, str]) -> Node:
        """The one node that these labels name.

        Raises:
            SubjectError: they name none, or several.
        """
        texts = list(dict.fromkeys(labels[label] for label in NODE_LABELS if labels.get(label)))
        if not texts:
            raise SubjectError(NO_SUBJECT)
        found = sorted(set().union(*map(self._named, texts)))
        shown = " or ".join(repr(text[:64]) for text in texts)
        if not found:
            raise SubjectError(f"no node is called {shown}; see /api/v1/nodes for those that exist")
        if len(found) > 1:
            names = first_names(found, NAMED_NODES)
            raise SubjectError(f"{shown} could be {names}; name one of them in the label node")
        return self._nodes[found[0]]

    def _named(self, text: str) -> set[str]:
        host = host_of(text)
        # two full names of one short name are two hosts
        short = self._hosts.get(_short(host)) if _short(host) != host else self._short.get(host)
        return self._exact.get(text.lower()) or self._hosts.get(host) or short or set()


def _short(host: str) -> str:
    """A host name without its domain; an address as it is."""
    return host if is_address(host) else host.partition(".")[0]


@dataclass(slots=True)
class AlertGroup:
    """Firing alerts about one job or node; `news` has the keys of those that were not captured within the cool-down."""

    subject: FleetJob | Node
    alerts: list[Alert] = field(default_factory=list)
    news: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Its subject, unique among jobs and nodes."""
        return f"job {self.subject.text}" if isinstance(self.subject, FleetJob) else f"node {self.subject.name}"

    def key(self, alert: Alert) -> str:
        """Alerts of one name about one job or node are the same alert, whatever their other labels are."""
        return f"{self.name} {alert.labels.get(NAME_LABEL, '')}"

    def plan(self, settings: GatewayCaptures, now_ns: int, clock: Clock = time) -> WantedCapture:
        """The capture around the earliest start of the new alerts, or around now if no start is within reach."""
        # a node refuses more than its history
        reach_ns = min(REACH_NS, HISTORY_NS - settings.before_ns - settings.after_ns)
        starts = [alert.starts_ns for alert in self.alerts if alert.starts_ns and self.key(alert) in self.news]
        age_ns = now_ns - min((start for start in starts if now_ns - reach_ns <= start <= now_ns), default=now_ns)
        # the maximum of a file
        labels = dict(list(join_labels([alert.labels for alert in self.alerts]).items())[:MAX_LABELS])
        return WantedCapture(
            labels.get(NAME_LABEL, "alert")[:MAX_REASON] or "alert",
            labels,
            settings.before_ns + age_ns,
            max(MIN_NS, settings.after_ns - age_ns),
            clock.monotonic_ns(),
            clock,
        )


class AlertCaptures:
    """Takes a capture for each job or node that firing alerts are about, each alert once per cool-down."""

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        self._cooldown = Cooldown(COOLDOWN_NS)
        self._failures = Occurrences()

    async def take(self, alerts: Sequence[Alert]) -> dict[str, Any]:
        """The answer to a notification."""
        settings, clock = self._parts.captures, self._parts.clock
        monotonic_ns = clock.monotonic_ns()
        groups, problems, repeated = self._group([alert for alert in alerts if alert.firing], monotonic_ns)
        wanted = [(group, group.plan(settings, clock.time_ns(), clock)) for group in groups if group.news]
        # before they are taken: a second Alertmanager may send the same at the same time
        for group, _ in wanted:
            for key in group.news:
                self._cooldown.begin(key, monotonic_ns)
        found = await asyncio.gather(*(self._take(group.subject, own) for group, own in wanted))
        outcomes = [(group, taken) for (group, _), taken in zip(wanted, found, strict=True)]
        for group, taken in outcomes:
            if isinstance(taken, str):
                problems.append({"alert": group.alerts[0].labels.get(NAME_LABEL, ""), "reason": taken})
                for key in group.news:
                    self._cooldown.cancel(key)
        self._log(problems)
        if outcomes and all(isinstance(taken, str) for _, taken in outcomes):
            # Alertmanager tries again
            raise ProblemError("no-captures", 503, problems[-1]["reason"])
        done = [(group.subject, taken) for group, taken in outcomes if not isinstance(taken, str)]
        return {
            "captures": [taken for subject, taken in done if isinstance(subject, FleetJob)],
            "nodes": [taken for subject, taken in done if isinstance(subject, Node)],
            "repeated": repeated,
            "problems": problems,
        }

    def _group(
        self, alerts: Sequence[Alert], monotonic_ns: int
    ) -> tuple[Sequence[AlertGroup], list[dict[str, str]], int]:
        """The alerts by subject, the problems of alerts without a known one, and the number of repeated alerts."""
        jobs, nodes = list_jobs(self._parts.table.rows()), NodeNames(self._parts.nodes.all())
        groups: dict[str, AlertGroup] = {}
        problems: list[dict[str, str]] = []
        repeated = 0
        for alert in alerts:
            named = alert.labels.get(JOB_LABEL, "")
            try:
                group = AlertGroup(choose_job(jobs, named) if named else nodes.find(alert.labels))
            except (SubjectError, ProblemError) as error:
                reason = error.detail if isinstance(error, ProblemError) else str(error)
                problems.append({"alert": alert.labels.get(NAME_LABEL, ""), "reason": reason})
                continue
            group = groups.setdefault(group.name, group)
            group.alerts.append(alert)
            if self._cooldown.covers(group.key(alert), monotonic_ns):
                repeated += 1
            else:
                group.news.add(group.key(alert))
        return list(groups.values()), problems, repeated

    async def _take(self, subject: FleetJob | Node, wanted: WantedCapture) -> dict[str, Any] | str:
        """The capture of a job or a node as in the answer, or why there is none."""
        if isinstance(subject, FleetJob):
            taken = await capture_job(self._parts, subject, wanted)
            return taken if taken["nodes"] else missing_nodes_text(taken)
        found = await self._parts.nodes.ask_all([subject], wanted.ask)
        if found.missing:
            return f"{subject.name} takes no capture: {found.missing[subject.name]}"
        return describe_pending(subject.name, found.answers[subject.name])

    def _log(self, problems: Sequence[Mapping[str, str]]) -> None:
        """Log the first problems that were not logged lately: Alertmanager does not show the answer."""
        news = (each for each in problems if self._failures.is_news((each["alert"], each["reason"])))
        for each in islice(news, LOGGED_PROBLEMS):
            log.warning("the alert %r took no capture: %s", each["alert"], each["reason"])


def alert_router(parts: GatewayParts) -> APIRouter:
    """The route of Alertmanager's webhook."""
    router, captures = APIRouter(), AlertCaptures(parts)

    accepted = {"description": "Notification accepted."}

    @router.post(
        PATH,
        **operation("receive_alerts", accepted, 403, 413, 422, 503, reasons=REFUSALS),
        openapi_extra=request_schema(Notification, required=True),
    )
    async def take_notification(request: Request) -> Response:
        """Alertmanager's webhook: firing alerts save the samples around their start, on a job's nodes or one node."""
        check_writer(request, allow_unauthenticated=parts.allow_unauthenticated)
        return json_response(200, await captures.take(read_alerts(read_body(Notification, await request.body()))))

    return router
