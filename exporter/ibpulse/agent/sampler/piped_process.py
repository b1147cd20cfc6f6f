"""A child process without the standard streams of this one; its messages are logged here."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence

from ibpulse.base.internal_errors import Occurrences

log = logging.getLogger(__name__)

# the capacity of a pipe: one read empties it
PIPE_BYTES = 65_536
# of all processes: one that is started again for the same reason says the same
_said = Occurrences()


class PipedProcess:
    """A process that hangs in the kernel keeps its streams open, so it gets none that another program may wait for.

    What it writes to standard error, such as a traceback, is logged as soon as it pauses or ends.
    """

    def __init__(self, command: Sequence[str], inherited: Sequence[int] = ()) -> None:
        """Start the command, which inherits these descriptors.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=inherited
        )
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        self._unlogged = b""
        os.set_blocking(self._stderr.fileno(), False)

    def poll(self) -> int | None:
        """Exit status, negative for a signal, None while the process runs; logs its messages."""
        status = self._process.poll()
        self._log_messages(ended=status is not None)
        return status

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the process: it no longer runs user code, but may take long to end."""
        self._process.kill()

    def _log_messages(self, *, ended: bool) -> None:
        if self._stderr.closed:
            return
        fresh = self._read()
        self._unlogged += fresh
        # the rest of a traceback may follow
        if ended or not fresh or len(self._unlogged) >= PIPE_BYTES:
            text, self._unlogged = self._unlogged.decode(errors="replace").strip(), b""
            # a part of a longer message may be like another part
            if text and (len(text) >= PIPE_BYTES or _said.is_news(hash(text))):
                log.error("message from a process: %s", text)
        if ended:
            self._stderr.close()

    def _read(self) -> bytes:
        try:
            return os.read(self._stderr.fileno(), PIPE_BYTES)
        except BlockingIOError:
            return b""
