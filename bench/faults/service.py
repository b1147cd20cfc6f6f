"""The daemon as a service manager runs it: started, started again whenever it ends, stopped at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.faults.plan import START_SECONDS

RESTART_SECONDS = 1.0
LAST_LINES = 3


class Service:
    """A verb of ibpulse with these flags, in this environment, below another command if one is given.

    `url` is empty while it does not listen, `all_pids` has one process for each of its lives. The next life has
    `more_flags` as well.
    """

    def __init__(
        self,
        flags: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        verb: str = "serve",
        under: Sequence[str] = (),
    ) -> None:
        self.url = ""
        self.log_path = log
        # the last log lines of each life that ended before `stop`, with the monotonic time in seconds
        self.ends: list[tuple[float, str]] = []
        self.all_pids: list[int] = []
        self.more_flags: Sequence[str] = ()
        self._command = [*under, sys.executable, "-m", "ibpulse", verb, *flags]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._said = 0
        self._restart_at = 0.0
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start the daemon and the thread that restarts it.

        Raises:
            TimeoutError: it does not listen.
        """
        self._launch()
        self._watcher.start()
        self.wait_until_listening()

    def wait_until_listening(self) -> None:
        """Return once the daemon listens.

        Raises:
            TimeoutError: it does not within 30 s.
        """
        end = time.monotonic() + START_SECONDS
        while not self.url:
            if time.monotonic() > end:
                raise TimeoutError(f"the daemon does not start: {self.last_words()}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """The main process."""
        assert self._process is not None
        return self._process.pid

    def child_pids(self) -> list[int]:
        """The processes whose parent is the daemon; none if it has ended."""
        try:
            return [
                int(pid)
                for file in Path(f"/proc/{self.pid}/task").glob("*/children")
                for pid in file.read_text().split()
            ]
        except OSError:
            return []

    def descriptors(self) -> int:
        """Open file descriptors of the main process; 0 if it has ended."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return 0

    def last_words(self) -> str:
        """The end of the log of this life."""
        return " / ".join(self._log_of_this_life().splitlines()[-LAST_LINES:])

    def stop(self, patience: float) -> tuple[float, int | None, list[int]]:
        """Send SIGTERM: seconds until the end, exit status (None if it had to be killed), and processes left over."""
        self._stop.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._process is None:
            return 0.0, 0, []
        children = self.child_pids() if self._process.poll() is None else []
        begun = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            status: int | None = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            status = None
            self._process.kill()
            self._process.wait()
        seconds = time.monotonic() - begun
        left = [pid for pid in children if _runs(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return seconds, status, left

    def _log_of_this_life(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(self._said)
            return log.read().decode(errors="replace")

    def _launch(self) -> None:
        with self.log_path.open("ab") as log:
            self._said = log.tell()
            self._process = subprocess.Popen(
                [*self._command, *self.more_flags], stdout=log, stderr=log, env=self._environment
            )
        self.all_pids.append(self._process.pid)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            assert self._process is not None
            status = self._process.poll()
            if status is None:
                if not self.url and (found := re.search(r"http://127\.0\.0\.1:\d+", self._log_of_this_life())):
                    self.url = found.group()
                continue
            now = time.monotonic()
            if self.url or self._restart_at == 0.0:
                self.url = ""
                self._restart_at = now + RESTART_SECONDS
                self.ends.append((now, f"the daemon ended with status {status}: {self.last_words()}"))
            elif now >= self._restart_at:
                self._restart_at = 0.0
                self._launch()


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
