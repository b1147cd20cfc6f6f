"""The wall clock of a simulated node, ahead or behind by the same time in every process of the node.

The processes of a real node never import this. Standard library only, because the sampler of a simulated node does.
"""

from __future__ import annotations

import time
from pathlib import Path

WALL_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_TAI)
STARTUP = """\
from ibpulse.workbench.simulate.node_clock import shift_wall_clock

shift_wall_clock({offset_ns})
"""


def shift_wall_clock(offset_ns: int) -> None:
    """Shift every wall clock that this process will read.

    Call it before other modules take functions of `time`.
    """
    true_ns, read_ns = time.time_ns, time.clock_gettime_ns

    def clock_gettime_ns(clock: int) -> int:
        return read_ns(clock) + (offset_ns if clock in WALL_CLOCKS else 0)

    vars(time).update(
        time=lambda: (true_ns() + offset_ns) / 1e9,
        time_ns=lambda: true_ns() + offset_ns,
        clock_gettime=lambda clock: clock_gettime_ns(clock) / 1e9,
        clock_gettime_ns=clock_gettime_ns,
    )


def node_environment(environ: dict[str, str], folder: Path, offset_ns: int) -> dict[str, str]:
    """The environment in which every Python process has a shifted clock; `folder` is filled for it.

    Python imports `sitecustomize` before anything else, in the children of a process as well.
    """
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(STARTUP.format(offset_ns=offset_ns))
    package = Path(__file__).parents[2]
    paths = [str(folder), str(package), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": ":".join(paths)}
