"""The terminal by curses: opened, drawn on, restored at the end.

Whatever ends the view, the terminal is put back.
"""

from __future__ import annotations

import curses
import locale
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ibpulse.errors import IbpulseError
from ibpulse.terminal.screen import ASCII, BLOCKS, Line, Marks, Style

STDIN = 0
# curses waits this long for what follows an escape, and everything else waits with it
ESCAPE_MS = 25
ADVICE = "try `TERM=xterm-256color ibpulse top`"


class Display:
    """An open terminal; `encoding` is what curses writes in."""

    def __init__(self, window: curses.window, encoding: str) -> None:
        self._window = window
        self._encoding = encoding
        self._attributes = choose_attributes(os.environ)
        self._poll = select.poll()
        # hanging up is told whether or not it is asked for
        self._poll.register(STDIN, 0)
        self.marks = choose_marks(encoding)
        self.fit()

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        rows, columns = self._window.getmaxyx()
        return columns, rows

    def fit(self) -> None:
        """Take up the size that the terminal has now, where it is known."""
        size = os.get_terminal_size(STDIN)
        if size.lines and size.columns:
            curses.resizeterm(size.lines, size.columns)

    def pressed(self) -> Iterator[int]:
        """The keys that were pressed since the last call."""
        while (key := self._window.getch()) != curses.ERR:
            yield key

    def hung_up(self) -> bool:
        """Whether the terminal is gone: then standard input is always readable, and empty."""
        return bool(self._poll.poll(0))

    def repair(self) -> None:
        """Draw everything anew at the next `draw`: something else may have written on the terminal."""
        self._window.clearok(True)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines and nothing else."""
        self._window.erase()
        for row, line in enumerate(lines):
            self._draw_line(row, line)
        self._window.refresh()

    def _draw_line(self, row: int, line: Line) -> None:
        # the cursor has no place behind the last cell of the last line; curses says so after it has drawn
        with suppress(curses.error):
            self._window.move(row, 0)
            for span in line:
                self._window.addstr(self._plain(span.text), self._attributes[span.style])

    def _plain(self, text: str) -> str:
        """Only what moves the cursor one cell on; names and reasons come from elsewhere."""
        text = text.encode(self._encoding, "replace").decode(self._encoding)
        return text if text.isprintable() else "".join([sign if sign.isprintable() else "?" for sign in text])


@contextmanager
def open_display() -> Iterator[Display]:
    """The terminal, until the block ends.

    Raises:
        IbpulseError: the terminal is of an unknown kind, or cannot place text.
    """
    encoding = set_encoding(os.environ)
    try:
        curses.setupterm()
        if curses.tigetstr("cup") is None:
            raise IbpulseError(f"{_terminal()} cannot place text on its screen; {ADVICE}")
        curses.set_escdelay(ESCAPE_MS)
        window = curses.initscr()
    except curses.error as error:
        raise IbpulseError(f"{_terminal()} is not known: {error}; {ADVICE}") from error
    try:
        curses.noecho()
        curses.cbreak()
        window.keypad(True)
        window.nodelay(True)
        with suppress(curses.error):
            curses.curs_set(0)
        yield Display(window, encoding)
    finally:
        # where the terminal is gone, nothing of this can be done
        with suppress(curses.error):
            window.keypad(False)
            curses.nocbreak()
            curses.echo()
        with suppress(curses.error):
            curses.endwin()


def check_terminal() -> None:
    """Nothing where standard input and output are a terminal.

    Raises:
        IbpulseError: they are not.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise IbpulseError(
            "top draws on a terminal, and standard input or output is none (ssh gives one with -t); "
            "`ibpulse record` writes a file instead"
        )


def set_encoding(environ: Mapping[str, str]) -> str:
    """The encoding that curses will write in; Python itself may have chosen UTF-8 whatever the locale says."""
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:
        # ssh brings the variables of another machine, whose locales need not be here
        wanted = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
        wide = wanted.lower().replace("-", "").endswith("utf8")
        with suppress(locale.Error):
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8" if wide else "C")
    return locale.nl_langinfo(locale.CODESET)


def choose_marks(encoding: str) -> Marks:
    """Blocks where the terminal's encoding has them, else characters that every terminal has."""
    try:
        BLOCKS.levels.encode(encoding)
        BLOCKS.parts.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS


def choose_attributes(environ: Mapping[str, str]) -> Mapping[Style, int]:
    """What each style looks like here; nothing depends on colours, and NO_COLOR does without (no-color.org)."""
    found = {
        Style.PLAIN: curses.A_NORMAL,
        Style.TITLE: curses.A_REVERSE,
        Style.DIM: curses.A_DIM,
        Style.RATE: curses.A_NORMAL,
        Style.WARNING: curses.A_BOLD,
    }
    if environ.get("NO_COLOR") or not curses.has_colors():
        return found
    with suppress(curses.error):
        curses.start_color()
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_CYAN, -1)
        curses.init_pair(2, curses.COLOR_YELLOW, -1)
        found[Style.RATE] = curses.color_pair(1)
        found[Style.WARNING] |= curses.color_pair(2)
    return found


def _terminal() -> str:
    return f"the terminal {os.environ.get('TERM', '')!r}"
