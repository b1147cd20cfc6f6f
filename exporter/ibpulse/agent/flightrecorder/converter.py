"""Converts a capture to a trace of Perfetto in its own process, because pyarrow takes memory: its file is stdin."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from ibpulse.agent.flightrecorder.writer import ENVIRONMENT, NICE, OOM_SCORE
from ibpulse.base import limits
from ibpulse.base.deadline import yield_to_others
from ibpulse.base.errors import CaptureError, IbpulseError
from ibpulse.base.text import split_lines

SECONDS = 60
CHUNK_BYTES = 262_144
# measured: 50 MB besides library pages, for a capture of 60 s of 8 ports; some of those must stay, too
MEMORY_BYTES = 56_000_000
INPUT = Path("/proc/self/fd/0")


async def convert_capture(descriptor: int) -> AsyncGenerator[bytes]:
    """The trace of the capture in an open file, which is closed here.

    Raises:
        CaptureError: it cannot be converted.
    """
    try:
        left = limits.left_in_cgroups()
        if left is not None and left < MEMORY_BYTES:
            raise CaptureError(f"only {left / 1e6:.0f} MB are left of the memory limit of this service")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ibpulse.agent.flightrecorder.converter"),
            stdin=descriptor,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **ENVIRONMENT},
        )
    except OSError as error:
        raise CaptureError(f"cannot start its converter: {error.strerror}") from error
    finally:
        os.close(descriptor)
    assert process.stdout
    assert process.stderr
    try:
        while chunk := await process.stdout.read(CHUNK_BYTES):
            yield chunk
        lines = split_lines((await process.stderr.read()).decode(errors="replace").strip())
        if await process.wait():
            raise CaptureError(lines[-1] if lines else f"its converter exited with status {process.returncode}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def main() -> int:
    """Write the trace of the capture on stdin to stdout, and return the exit code."""
    signal.alarm(SECONDS)
    yield_to_others(NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    try:
        from ibpulse.core.recordings.files import read_meta, scan_part  # pyarrow is optional
        from ibpulse.core.recordings.perfetto import TracedNode, write_trace

        sys.stdout.buffer.writelines(write_trace([TracedNode(read_meta(INPUT), scan_part(INPUT))]))
    except IbpulseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
