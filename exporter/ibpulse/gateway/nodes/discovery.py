"""The nodes of all sources, read again and again. A source that fails keeps the nodes of its last good answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ibpulse.base.clocks import Clock
from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import ConfigError, DiscoveryError
from ibpulse.base.internal_errors import GATEWAY_PARTS, InternalErrors
from ibpulse.base.text import show
from ibpulse.core.client.transport import NodeAccess
from ibpulse.gateway.nodes.node_config import NodeConfigFile
from ibpulse.gateway.nodes.target_sources import SOURCE_SECONDS, TargetSource, parse_source
from ibpulse.gateway.nodes.targets import MAX_TARGETS, Target

log = logging.getLogger(__name__)

REFRESH_SECONDS = 30.0
# hung lookups and files keep their thread
MAX_THREADS = 8


@dataclass(frozen=True, slots=True)
class SourceState:
    """A source by name: the number of its nodes, its problem or an empty text, and the age of its last good answer."""

    name: str
    nodes: int
    problem: str
    age_seconds: float | None


@dataclass(slots=True)
class _Known:
    """A source, the access to its nodes, its last good answer, and why the last one was not good."""

    source: TargetSource
    config: NodeConfigFile
    targets: tuple[Target, ...] = ()
    problem: str = ""
    answered_at: float | None = None
    notices: tuple[str, ...] = ()
    failures: int = 0
    running: asyncio.Task[None] | None = None

    def problems(self) -> tuple[str, ...]:
        """What is wrong with it now."""
        kept = "; the nodes of its last good answer stay" if self.problem and self.answered_at is not None else ""
        return tuple(filter(None, (self.problem + kept, self.config.problem, *self.notices)))


class Discovery:
    """The nodes of all sources. Of nodes with one name, that of the first source counts."""

    def __init__(
        self,
        sources: Sequence[tuple[TargetSource, NodeConfigFile]],
        errors: InternalErrors | None = None,
        clock: Clock = time,
    ) -> None:
        """Nothing is read yet.

        Raises:
            ValueError: two sources have one name, so it is not clear whose password a node may get.
        """
        names = [source.name for source, _ in sources]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{show(twice[0])} is given twice; give each source of nodes once")
        self._clock = clock
        self._known = [_Known(source, config) for source, config in sources]
        self._errors = errors or InternalErrors(parts=GATEWAY_PARTS)
        self._threads = DaemonThreads(MAX_THREADS, "discovery")
        self.targets: tuple[Target, ...] = ()
        self.asked = asyncio.Event()
        """Set once a source has listed nodes, or all were asked."""

    def sources(self) -> tuple[SourceState, ...]:
        """The sources in their order."""
        now = self._clock.monotonic()
        return tuple(
            SourceState(
                known.source.name,
                len(known.targets),
                "; ".join(known.problems()),
                None if known.answered_at is None else now - known.answered_at,
            )
            for known in self._known
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the sources, as sentences."""
        return tuple(f"{known.source.name}: {problem}" for known in self._known for problem in known.problems())

    def failures(self) -> dict[str, int]:
        """How often each source could not be read."""
        return {known.source.name: known.failures for known in self._known}

    def access(self, target: Target) -> NodeAccess:
        """The access to a node: that of its own source, never another one's."""
        return next(known.config.access for known in self._known if known.source.name == target.source)

    async def refresh(self) -> None:
        """Read all sources in parallel. What each lists counts at once; late ones go on."""
        for known in self._known:
            if known.running is None or known.running.done():
                known.running = asyncio.create_task(self._read(known))
        running = [known.running for known in self._known if known.running]
        if running:
            await asyncio.wait(running, timeout=SOURCE_SECONDS)
        for known in self._known:
            if known.running and not known.running.done():
                known.problem = f"no answer within {SOURCE_SECONDS:g} s"
            known.failures += bool(known.problem)
        self._merge()

    async def run(self) -> None:
        """Refresh every `REFRESH_SECONDS`, forever. New problems are logged."""
        known: tuple[str, ...] = ()
        while True:
            with self._errors.boundary("discovery"):
                await self.refresh()
            self.asked.set()
            problems = self.problems
            for problem in problems:
                if problem not in known:
                    log.warning("%s", problem)
            known = problems
            await asyncio.sleep(REFRESH_SECONDS)

    async def close(self) -> None:
        """End what still reads, and close all connections."""
        for known in self._known:
            if known.running:
                known.running.cancel()
                await asyncio.gather(known.running, return_exceptions=True)
            await known.source.close()

    async def _read(self, known: _Known) -> None:
        problem = "internal error of the gateway; see its log"
        with self._errors.boundary("discovery", known.source.name):
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, known.config.poll)
                known.targets = await known.source.ask(self._threads)
                problem, known.answered_at = "", self._clock.monotonic()
            except DiscoveryError as error:
                problem = "; ".join(error.faults)
        known.problem = problem
        with self._errors.boundary("discovery"):
            self._merge()

    def _merge(self) -> None:
        found: dict[str, Target] = {}
        for known in self._known:
            new = {target.name: target for target in known.targets if target.name not in found}
            twice = next((target.name for target in known.targets if target.name in found), None)
            notices = [] if twice is None else [f"{twice!r} is a node of an earlier source, which counts"]
            if len(found) + len(new) > MAX_TARGETS:
                notices.append(f"more than {MAX_TARGETS} nodes in all; the others are left out")
            found |= islice(new.items(), MAX_TARGETS - len(found))
            known.notices = tuple(notices)
        self.targets = tuple(found.values())
        if found:
            self.asked.set()


def make_discovery(texts: Sequence[str], config_file: Path | None, errors: InternalErrors | None = None) -> Discovery:
    """The discovery of the sources that `nodes.sources` lists, which all have the access of `nodes.config.file`.

    Raises:
        ConfigError: a source or that file is invalid.
    """
    config = NodeConfigFile(config_file)
    sources, faults = [], []
    for text in texts:
        try:
            sources.append((parse_source(text), config))
        except ValueError as error:
            faults.append(f"nodes.sources: {error}")
    if faults:
        raise ConfigError(faults)
    try:
        return Discovery(sources, errors)
    except ValueError as error:
        raise ConfigError([f"nodes.sources: {error}"]) from error
