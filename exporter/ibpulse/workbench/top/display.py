"""The terminal, with curses: opened, drawn on, and always restored at the end."""

from __future__ import annotations

import curses
import locale
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ibpulse.base.errors import IbpulseError
from ibpulse.workbench.top.styled_text import ASCII, BLOCKS, Line, Marks, Style

STDIN = 0
# curses waits this long for the rest of an escape sequence, and blocks everything else meanwhile
ESCAPE_MS = 25
ADVICE = "try `TERM=xterm-256color ibpulse top`"


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

    def draw(self, lines: Sequence[Line]) -> None:
        """Replace the screen with these lines."""
        self._window.erase()
        for row, line in enumerate(lines):
            self._draw_line(row, line)
        self._window.refresh()

    def _draw_line(self, row: int, line: Line) -> None:
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
    """The terminal, until the block ends.

    Raises:
        IbpulseError: the terminal type is unknown, or cannot position text.
    """
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
    """Check that standard input and output are a terminal.

    Raises:
        IbpulseError: they are not.
    """
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


def choose_marks(encoding: str) -> Marks:
    """Block characters if the terminal's encoding has them, otherwise ASCII."""
    try:
        BLOCKS.levels.encode(encoding)
        (BLOCKS.parts + BLOCKS.unknown + BLOCKS.down).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS


def choose_attributes(environ: Mapping[str, str]) -> Mapping[Style, int]:
    """The look of each style; nothing depends on colours, and NO_COLOR turns them off (no-color.org)."""
    found = {
        Style.PLAIN: curses.A_NORMAL,
        Style.TITLE: curses.A_REVERSE,
        Style.DIM: curses.A_DIM,
        Style.RATE: curses.A_NORMAL,
        Style.WARNING: curses.A_BOLD,
        Style.ALARM: curses.A_BOLD,
    }
    if environ.get("NO_COLOR") or not curses.has_colors():
        return found
    with suppress(curses.error):
        curses.start_color()
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_CYAN, -1)
        curses.init_pair(2, curses.COLOR_YELLOW, -1)
        curses.init_pair(3, curses.COLOR_RED, -1)
        found[Style.RATE] = curses.color_pair(1)
        found[Style.WARNING] |= curses.color_pair(2)
        found[Style.ALARM] |= curses.color_pair(3)
    return found


def _terminal() -> str:
    return f'terminal type "{os.environ.get("TERM", "")}"'
