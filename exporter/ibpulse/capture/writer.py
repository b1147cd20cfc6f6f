"""The process that writes one capture: `python -m ibpulse.capture.writer`, a job as JSON on standard input.

It is short-lived because of the memory that pyarrow takes, and nice because nobody waits for it. It reads the ring
itself, so nothing is copied through the daemon, and it ends a capture even when the daemon is gone. It must import no
more than it needs: what it takes of its own, beside the pages of the libraries, has to fit beside the daemon.
"""

from __future__ import annotations

import os
import signal
import sys

from ibpulse.capture.job import Job, parse_job
from ibpulse.capture.window import read_pieces
from ibpulse.errors import IbpulseError
from ibpulse.ring.file import RingFile
from ibpulse.ring.reader import RingReader

NICE = 19
# A row group of that many rows costs 1 % more of the disk than one of ten times as many, and 3 MB less of memory.
ROWS_AT_ONCE = 8_000


def main(arguments: list[str]) -> int:
    """Write the capture that standard input asks for, in at most so many seconds; 1 if it cannot be written."""
    # these reach the whole service at its end, and a capture in flight is to be ended
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(max(1, int(arguments[0])))
    os.nice(NICE)
    try:
        write_capture(parse_job(sys.stdin.buffer.read()))
    except IbpulseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def write_capture(job: Job) -> None:
    """Write the file of a job.

    Raises:
        IbpulseError: the ring cannot be read, the file cannot be written, or pyarrow is missing.
    """
    from ibpulse.recording.writing import save_pieces  # pyarrow may be missing

    reader = RingReader(RingFile(job.ring, writable=False))
    at_once = max(1, ROWS_AT_ONCE // len(job.meta.ports))
    save_pieces(job.path, job.meta, read_pieces(reader, job.meta, job.first_tick, job.last_tick, job.start_ns, at_once))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
