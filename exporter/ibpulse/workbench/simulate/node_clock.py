"""The wall clock of a simulated node, ahead or behind by the same time in every process of the node.

The processes of a real node never import this. Standard library only, because the sampler of a simulated node does.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path

WALL_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_TAI)
OFFSET_FILE = "offset"
STARTUP = """\
from ibpulse.workbench.simulate.node_clock import shift_wall_clock

shift_wall_clock({path!r})
"""


def shift_wall_clock(path: str) -> None:
    """Shift every wall clock that this process will read by the nanoseconds in a file, also after they change.

    Call it before other modules take functions of `time`.
    """
    with open(path, "rb") as file:
        offset_ns = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)).cast("q")
    true_ns, read_ns = time.time_ns, time.clock_gettime_ns

    def clock_gettime_ns(clock: int) -> int:
        return read_ns(clock) + (offset_ns[0] if clock in WALL_CLOCKS else 0)

    vars(time).update(
        time=lambda: (true_ns() + offset_ns[0]) / 1e9,
        time_ns=lambda: true_ns() + offset_ns[0],
        clock_gettime=lambda clock: clock_gettime_ns(clock) / 1e9,
        clock_gettime_ns=clock_gettime_ns,
    )


def node_environment(environ: dict[str, str], folder: Path, offset_ns: int) -> dict[str, str]:
    """The environment in which every Python process has a shifted clock; `folder` is filled for it.

    Python imports `sitecustomize` before anything else, in the children of a process as well.
    """
    folder.mkdir(parents=True)
    (folder / OFFSET_FILE).write_bytes(_to_bytes(offset_ns))
    (folder / "sitecustomize.py").write_text(STARTUP.format(path=str(folder / OFFSET_FILE)))
    package = Path(__file__).parents[2]
    paths = [str(folder), str(package), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": ":".join(paths)}


def step_wall_clock(folder: Path, offset_ns: int) -> None:
    """Change the offset of every running process that has the environment of this folder."""
    # in place, because they have mapped it
    with (folder / OFFSET_FILE).open("r+b", buffering=0) as file:
        file.write(_to_bytes(offset_ns))


def _to_bytes(offset_ns: int) -> bytes:
    return offset_ns.to_bytes(8, sys.byteorder, signed=True)
