"""The terminal with curses, and the loop of the live view: it fetches and draws, handles keys, resizing and signals."""

from __future__ import annotations

import asyncio
import curses
import locale
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonError, IbpulseError
from ibpulse.workbench.top import screen
from ibpulse.workbench.top.view import View, Watcher

STDIN = 0
# curses waits this long for the rest of an escape sequence, and blocks everything else meanwhile
ESCAPE_MS = 25
ADVICE = "try `TERM=xterm-256color ibpulse top`"
REFRESH_SECONDS = 0.5
MAX_POINTS = 300
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


class Display:
    """An open terminal; `encoding` is the encoding in which curses writes."""

    def __init__(self, window: curses.window, encoding: str) -> None:
        self._window = window
        self._encoding = encoding
        self._attributes = choose_attributes(os.environ)
        self._poll = select.poll()
        # poll reports a hang-up whether or not it is requested
        self._poll.register(STDIN, 0)
        self.marks = choose_marks(encoding)
        self.fit()

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        rows, columns = self._window.getmaxyx()
        return columns, rows

    def fit(self) -> None:
        """Adopt the terminal's current size, if known."""
        size = os.get_terminal_size(STDIN)
        if size.lines and size.columns:
            curses.resizeterm(size.lines, size.columns)

    def pressed(self) -> Iterator[int]:
        """The keys that were pressed since the last call."""
        while (key := self._window.getch()) != curses.ERR:
            yield key

    def hung_up(self) -> bool:
        """Whether the terminal is gone: standard input is then always readable and empty."""
        return bool(self._poll.poll(0))

    def repair(self) -> None:
        """Redraw everything at the next `draw`: another program may have written on the terminal."""
        self._window.clearok(True)

    def draw(self, lines: Sequence[screen.Line]) -> None:
        """Replace the screen with these lines."""
        self._window.erase()
        for row, line in enumerate(lines):
            self._draw_line(row, line)
        self._window.refresh()

    def _draw_line(self, row: int, line: screen.Line) -> None:
        # curses reports an error after drawing the last cell of the last line, because the cursor cannot advance
        with suppress(curses.error):
            self._window.move(row, 0)
            for span in line:
                self._window.addstr(self._plain(span.text), self._attributes[span.style])

    def _plain(self, text: str) -> str:
        """The text without characters that do not advance the cursor by one cell; names and reasons are untrusted."""
        text = text.encode(self._encoding, "replace").decode(self._encoding)
        return text if text.isprintable() else "".join([sign if sign.isprintable() else "?" for sign in text])


@contextmanager
def open_display() -> Iterator[Display]:
    """The terminal, until the block ends."""
    encoding = set_encoding(os.environ)
    try:
        curses.setupterm()
        if curses.tigetstr("cup") is None:
            raise IbpulseError(f"{_terminal()} cannot position text on its screen; {ADVICE}")
        curses.set_escdelay(ESCAPE_MS)
        window = curses.initscr()
    except curses.error as error:
        raise IbpulseError(f"{_terminal()} is unknown: {error}; {ADVICE}") from error
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        window.nodelay(True)
        with suppress(curses.error):
            curses.curs_set(0)
        yield Display(window, encoding)
    finally:
        # all of this fails if the terminal is gone
        with suppress(curses.error):
            window.keypad(False)
            curses.nocbreak()
            curses.echo()
        with suppress(curses.error):
            curses.endwin()


def check_terminal() -> None:
    """Check that standard input and output are a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise IbpulseError(
            "top needs a terminal, but standard input or output is not one (with ssh, use -t); "
            "`ibpulse record` writes a file instead"
        )


def set_encoding(environ: Mapping[str, str]) -> str:
    """The encoding in which curses will write; Python itself may have chosen UTF-8 regardless of the locale."""
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        # ssh brings the variables of another machine, whose locales may be missing here
        wanted = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
        wide = wanted.lower().replace("-", "").endswith("utf8")
        with suppress(locale.Error):
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8" if wide else "C")
    return locale.nl_langinfo(locale.CODESET)


def choose_marks(encoding: str) -> screen.Marks:
    """Block characters if the terminal's encoding has them, otherwise ASCII."""
    try:
        screen.BLOCKS.levels.encode(encoding)
        (screen.BLOCKS.parts + screen.BLOCKS.unknown + screen.BLOCKS.down).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return screen.ASCII
    return screen.BLOCKS


def choose_attributes(environ: Mapping[str, str]) -> Mapping[screen.Style, int]:
    """The look of each style; nothing depends on colours, and NO_COLOR turns them off (no-color.org)."""
    found = {
        screen.Style.PLAIN: curses.A_NORMAL,
        screen.Style.TITLE: curses.A_REVERSE,
        screen.Style.DIM: curses.A_DIM,
        screen.Style.RATE: curses.A_NORMAL,
        screen.Style.WARNING: curses.A_BOLD,
        screen.Style.ALARM: curses.A_BOLD,
    }
    if environ.get("NO_COLOR") or not curses.has_colors():
        return found
    with suppress(curses.error):
        curses.start_color()
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_CYAN, -1)
        curses.init_pair(2, curses.COLOR_YELLOW, -1)
        curses.init_pair(3, curses.COLOR_RED, -1)
        found[screen.Style.RATE] = curses.color_pair(1)
        found[screen.Style.WARNING] |= curses.color_pair(2)
        found[screen.Style.ALARM] |= curses.color_pair(3)
    return found


def _terminal() -> str:
    return f'terminal type "{os.environ.get("TERM", "")}"'


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
        # a fetch may hang in the network
        self._threads = DaemonThreads(1, "fetch")

    async def run(self) -> None:
        """Show views until q, Ctrl-C, SIGTERM, or until the terminal is gone."""
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
        points = min(screen.spark_width(self._view, columns) if self._view else columns, MAX_POINTS)
        scale_ns = SCALES_NS[self._scale]
        try:
            self._watcher.prepare()
            self._view = await loop.run_in_executor(self._threads, self._watcher.fetch, points, scale_ns)
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
        end = screen.last_first(view, columns, rows, self._display.marks, self._status_note())
        self._first = min(max(0, self._first + rails), end)

    def _resize(self) -> None:
        self._display.fit()
        self._wanted.set()
        self._draw()

    def _draw(self) -> None:
        columns, rows = self._display.size()
        if self._help:
            self._display.draw(screen.lay_out_help(columns, rows, self._display.marks))
        elif self._view is None:
            text = self._status_note() or "waiting for data; q quits"
            self._display.draw([(screen.Span(text[:columns], screen.Style.WARNING),)])
        else:
            self._display.draw(
                screen.lay_out(self._view, columns, rows, self._display.marks, self._status_note(), self._first)
            )

    def _status_note(self) -> str:
        return self._fault or self._note()
