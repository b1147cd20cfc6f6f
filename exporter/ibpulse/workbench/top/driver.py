"""The loop of the live view: fetches and draws it, handles keys, resizing and signals."""

from __future__ import annotations

import asyncio
import curses
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from ibpulse.base.errors import DaemonError
from ibpulse.workbench.top.display import STDIN, Display, open_display
from ibpulse.workbench.top.screen import last_first, lay_out, lay_out_help, spark_width
from ibpulse.workbench.top.styled_text import Span, Style
from ibpulse.workbench.top.view import View, Watcher

REFRESH_SECONDS = 0.5
MOST_POINTS = 300
# at 80 columns from 0.4 to 20 s: one step of a training run, or a few
SCALES_NS = tuple(milliseconds * 1_000_000 for milliseconds in (10, 20, 50, 100, 200, 500))
FIRST_SCALE = 2
FINER, COARSER = frozenset(map(ord, "+=")), frozenset(map(ord, "-_"))
# how long closing the view may wait for the last fetch; one that hangs is abandoned
PATIENCE_SECONDS = 0.5
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
QUIT = frozenset(map(ord, "qQ"))
HELP = frozenset(map(ord, "?hH"))
REPAIR = ord("L") - ord("@")
ALL = 1_000_000
STEPS: Mapping[int, int] = {
    ord("j"): 1,
    ord("k"): -1,
    curses.KEY_DOWN: 1,
    curses.KEY_UP: -1,
    curses.KEY_NPAGE: 10,
    curses.KEY_PPAGE: -10,
    curses.KEY_HOME: -ALL,
    curses.KEY_END: ALL,
}


class Terminal:
    """The live view. `note` returns an extra message, or an empty text."""

    def __init__(self, watcher: Watcher, note: Callable[[], str] = str) -> None:
        self._watcher = watcher
        self._note = note
        self._display: Display
        self._view: View | None = None
        self._first = 0
        self._scale = FIRST_SCALE
        self._help = False
        self._fault = ""
        self._heard = 0.0
        self._over = asyncio.Event()
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Show views until q, Ctrl-C, SIGTERM, or until the terminal is gone.

        Raises:
            IbpulseError: the terminal cannot show them, or there is no more data.
        """
        loop = asyncio.get_running_loop()
        with open_display() as self._display:
            # a signal may come twice: Python's default handler must not get the second one
            for number in ENDS:
                loop.add_signal_handler(number, self._end)
            for number in (signal.SIGWINCH, signal.SIGCONT):
                loop.add_signal_handler(number, self._resize)
            loop.add_reader(STDIN, self._read_keys)
            try:
                await self._until_over(asyncio.create_task(self._watch()))
            finally:
                loop.remove_reader(STDIN)
                for number in (signal.SIGWINCH, signal.SIGCONT):
                    loop.remove_signal_handler(number)

    async def _until_over(self, watching: asyncio.Task[None]) -> None:
        over = asyncio.create_task(self._over.wait())
        await asyncio.wait({watching, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        await asyncio.wait({watching}, timeout=PATIENCE_SECONDS)
        if watching.done():
            watching.result()
        watching.cancel()

    async def _watch(self) -> None:
        self._heard = asyncio.get_running_loop().time()
        while not self._over.is_set():
            self._wanted.clear()
            await self._fetch()
            self._draw()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), REFRESH_SECONDS)

    def _end(self) -> None:
        self._over.set()
        self._wanted.set()

    async def _fetch(self) -> None:
        loop = asyncio.get_running_loop()
        columns = self._display.size()[0]
        points = min(spark_width(self._view, columns) if self._view else columns, MOST_POINTS)
        scale_ns = SCALES_NS[self._scale]
        try:
            self._watcher.prepare()
            self._view = await in_thread(lambda: self._watcher.fetch(points, scale_ns))
            self._fault, self._heard = "", loop.time()
        except DaemonError as error:
            age = f"{loop.time() - self._heard:.0f} s old: " if self._view else ""
            self._fault = f"{age}{error}"

    def _read_keys(self) -> None:
        if self._display.hung_up():
            self._end()
            return
        for key in self._display.pressed():
            if key in QUIT:
                self._end()
            elif key in HELP:
                self._help = not self._help
            elif key == REPAIR:
                self._display.repair()
            elif key in FINER | COARSER:
                self._scale = min(max(0, self._scale + (1 if key in COARSER else -1)), len(SCALES_NS) - 1)
                self._wanted.set()
            elif self._view:
                self._scroll(self._view, STEPS.get(key, 0))
        self._draw()

    def _scroll(self, view: View, rails: int) -> None:
        columns, rows = self._display.size()
        end = last_first(view, columns, rows, self._display.marks, self._status_note())
        self._first = min(max(0, self._first + rails), end)

    def _resize(self) -> None:
        self._display.fit()
        self._wanted.set()
        self._draw()

    def _draw(self) -> None:
        columns, rows = self._display.size()
        if self._help:
            self._display.draw(lay_out_help(columns, rows, self._display.marks))
        elif self._view is None:
            text = self._status_note() or "waiting for data; q quits"
            self._display.draw([(Span(text[:columns], Style.WARNING),)])
        else:
            self._display.draw(
                lay_out(self._view, columns, rows, self._display.marks, self._status_note(), self._first)
            )

    def _status_note(self) -> str:
        return self._fault or self._note()


async def in_thread(work: Callable[[], View]) -> View:
    """The result of the work, done in a daemon thread because it may hang in the network."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[View] = loop.create_future()

    def deliver(found: View | BaseException) -> None:
        if done.cancelled():
            return
        if isinstance(found, BaseException):
            done.set_exception(found)
        else:
            done.set_result(found)

    def run() -> None:
        found: View | BaseException
        try:
            found = work()
        except Exception as error:
            found = error
        # the loop may have ended
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, found)

    threading.Thread(target=run, daemon=True, name="fetch").start()
    return await done
