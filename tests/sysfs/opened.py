"""What this process opens and lists, as Python's own audit events tell it."""

from __future__ import annotations

import os
import sys

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_active: list[Opened] = []


class Opened:
    """Collects while it is switched on; paths are as they were given to the system."""

    def __init__(self) -> None:
        self._paths: list[str] = []
        self._written: list[str] = []

    def paths(self) -> list[str]:
        """Every path that was opened or listed since the last `clear`."""
        return list(self._paths)

    def written(self) -> list[str]:
        """Every path that was opened to be written."""
        return list(self._written)

    def clear(self) -> None:
        """Forget what was seen."""
        self._paths.clear()

    def switch_on(self) -> None:
        """Start to collect."""
        _active.append(self)

    def switch_off(self) -> None:
        """Stop to collect."""
        _active.remove(self)

    def note(self, event: str, arguments: tuple[object, ...]) -> None:
        """Take one audit event."""
        if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | os.PathLike):
            self._paths.append(os.fspath(arguments[0]))
            # path, mode and flags
            if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
                self._written.append(os.fspath(arguments[0]))


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    for opened in _active:
        opened.note(event, arguments)


# an audit hook cannot be taken away again, so there is one for all tests
sys.addaudithook(_hook)
