"""Notices when the files of a simulated tree are read."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import time
from pathlib import Path

log = logging.getLogger(__name__)

# from inotify.h
IN_ACCESS = 0x1
# a sampler reads all ports within this time
SETTLE_SECONDS = 0.0002
EVENT_BYTES = 65_536


class CounterReads:
    """Notices reads of files by any process with inotify; without inotify it only sleeps."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            log.warning("inotify: %s: reads that are late may show rates above the line rate", self._why())

    def watch(self, path: Path) -> None:
        """Notice reads of this file, too."""
        if self._descriptor >= 0 and self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), IN_ACCESS) < 0:
            log.warning("inotify: %s: %s", path, self._why())

    def pause(self, seconds: float) -> bool:
        """Sleep, or return early when a file was read; says whether one was since the last call."""
        if self._descriptor < 0:
            time.sleep(seconds)
            return False
        if select.select([self._descriptor], [], [], seconds)[0]:
            time.sleep(min(seconds, SETTLE_SECONDS))
        try:
            return bool(os.read(self._descriptor, EVENT_BYTES))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _why(self) -> str:
        return os.strerror(ctypes.get_errno())
