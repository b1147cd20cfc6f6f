"""`ibpulse top`: shows the live view in the terminal, from a running daemon or by sampling this node."""

from __future__ import annotations

import argparse
import asyncio
import logging
import platform
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from ibpulse.agent import node
from ibpulse.agent.config import Settings
from ibpulse.agent.config.settings import ListenAddress
from ibpulse.base.errors import ConfigError, DaemonError
from ibpulse.base.units import SECOND_NS
from ibpulse.commands.options import read_url
from ibpulse.core.client import DaemonAddress
from ibpulse.core.events.watch import KnownPort
from ibpulse.workbench import top as terminal
from ibpulse.workbench.top.driver import Terminal, check_terminal

# covers the longest sparkline, and the minute that shows whether counters are stuck
HISTORY_SECONDS = 160
# afterwards the last line shows the keys and the legend again
NOTE_SECONDS = 30.0
# flags of these groups make top sample by itself
SAMPLING = ("path.", "sampler.", "ports.")
REFUSED = (401, 403)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Show the live view until q, Ctrl-C, SIGTERM or the end of the terminal."""
    url = read_url(arguments)
    alone = is_alone(url, arguments.alone, arguments.origins)
    check_terminal()
    watcher = None if alone else find_daemon(url, settings.web.listen_address)
    if watcher is not None:
        asyncio.run(Terminal(watcher).run())
    else:
        asyncio.run(show_node(settings))
    return 0


def is_alone(url: str | None, asked: bool, origins: Mapping[str, str]) -> bool:
    """Whether top samples by itself. Only flags decide: settings from a file apply to the daemon as well."""
    flags = [name for name, place in origins.items() if name.startswith(SAMPLING) and place.startswith("flag ")]
    wanted = ["--alone"] * asked + [f"--{name}" for name in flags]
    if url and wanted:
        raise ConfigError([f"flag {wanted[0]}: cannot be combined with --url={url}, which shows a daemon's samples"])
    return bool(wanted)


def find_daemon(url: str | None, address: ListenAddress) -> terminal.DaemonWatcher | None:
    """A watcher of the daemon at the URL, or of this node's daemon; None if this node's does not answer."""
    host = address.host if address.host not in ("", "0.0.0.0", "::") else "localhost"
    asked = url or f"http://{address._replace(host=host)}"
    if not url and DaemonAddress(asked).refuses():
        return None
    watcher = terminal.DaemonWatcher.of(asked)
    try:
        watcher.fetch(1, SECOND_NS)
    except DaemonError as error:
        if url or error.status in REFUSED:
            raise
        return None
    return watcher


async def show_node(settings: Settings) -> None:
    """Sample this node's ports and show them, with the last log message on the status line."""
    notes = Notes()
    logging.basicConfig(level=logging.WARNING, handlers=[notes], force=True)
    async with watch_node(settings) as watcher:
        await Terminal(watcher, notes.last).run()


@asynccontextmanager
async def watch_node(settings: Settings) -> AsyncIterator[terminal.RingWatcher]:
    """A watcher of this node's ports, sampled while the block runs."""
    async with node.make_temporary_sampler(settings, HISTORY_SECONDS) as sampler:
        supervisor = sampler.supervisor

        def known_ports() -> tuple[KnownPort, ...]:
            sampler.check()
            return supervisor.known_ports()

        yield terminal.RingWatcher(
            sampler.reader,
            known_ports,
            lambda: supervisor.health().restarts,
            node.aggregator_options(settings),
            f"{platform.node()}, sampled here",
            sampler.events,
            supervisor.fabric.simulated,
        )


class Notes(logging.Handler):
    """Keeps the last log message, for `NOTE_SECONDS`."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._last, self._until = "", 0.0

    def last(self) -> str:
        """The last message with its time if it is recent, otherwise an empty text."""
        return self._last if self._monotonic() < self._until else ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message and its time until the next one."""
        self._until = self._monotonic() + NOTE_SECONDS
        self._last = f"{time.strftime('%H:%M:%S', time.gmtime(record.created))} {record.getMessage()}"
