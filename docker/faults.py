"""Injects faults into the demo's fabrics, one after another, for as long as it runs.

`python faults.py DIRECTORY`: each fabric is a subdirectory named after its node and is controlled by its `faults.json`.
Uses only the standard library, because it runs in the image without any other package.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HEALTHY: Mapping[str, object] = {}
# what a node has that no step changes
LASTING: Mapping[str, Mapping[str, object]] = {
    "idle-rail": {"idle-rail": ["mlx5_2"]},
    # and a bad cable: IBPulseSymbolErrors
    "moe": {"congested": {"mlx5_1": 0.0005, "mlx5_3": 0.0005, "mlx5_an0": 0.02}, "bit-errors": {"mlx5_7": 1e-9}},
}


@dataclass(frozen=True, slots=True)
class Step:
    """The faults of one node, their duration in seconds, and their visible effect."""

    node: str
    control: Mapping[str, object]
    seconds: float
    text: str


SILENT: Mapping[str, object] = {"workload": "idle"}
# in an unbroken stream, as of a mixture of experts, a pause of a minute explains one of three for the next 400 s
IN_STEPS: Mapping[str, object] = {"workload": "dense"}
DOWN, LOSSY = {"link-flap": ["mlx5_4"]}, {"unanswered": ["mlx5_5"]}
UNREADABLE: Mapping[str, object] = {"einval": [f"mlx5_{number}" for number in range(8)]}
# job 1001 runs on moe and idle-rail; the gateway says within ten seconds who was first; a pause of both is no alert yet
STALLS = (
    Step("moe", SILENT, 2, "moe: job 1001 hangs on this node first"),
    Step("idle-rail", SILENT, 60, "idle-rail waits for moe: verdict node"),
    Step("idle-rail", IN_STEPS, 0, "idle-rail goes on with job 1001"),
    Step("moe", IN_STEPS, 90, "moe goes on with job 1001"),
    Step("moe", DOWN, 1, "moe: the link of mlx5_4 is down"),
    Step("moe", DOWN | SILENT, 0, "moe: job 1001 hangs because of it"),
    Step("idle-rail", SILENT, 60, "idle-rail waits for moe: verdict link"),
    Step("idle-rail", IN_STEPS, 0, "idle-rail goes on with job 1001"),
    Step("moe", IN_STEPS, 90, "moe goes on with job 1001"),
    Step("moe", LOSSY | SILENT, 0, "moe: nobody acknowledges what mlx5_5 sends"),
    Step("idle-rail", LOSSY | SILENT, 60, "idle-rail: the same: verdict loss"),
    Step("idle-rail", IN_STEPS, 0, "idle-rail goes on with job 1001"),
    Step("moe", IN_STEPS, 90, "moe goes on with job 1001"),
    Step("moe", SILENT, 0, "moe: job 1001 pauses, as for a checkpoint"),
    Step("idle-rail", SILENT, 90, "idle-rail: the same: verdict together"),
    Step("idle-rail", IN_STEPS, 0, "idle-rail goes on with job 1001"),
    Step("moe", IN_STEPS, 90, "moe goes on with job 1001"),
    Step("idle-rail", UNREADABLE, 1, "idle-rail: no counter can be read"),
    Step("moe", SILENT, 60, "moe: job 1001 hangs, nobody knows why: verdict unknown"),
    Step("idle-rail", HEALTHY, 0, "idle-rail goes on with job 1001"),
    Step("moe", HEALTHY, 60, "moe is healthy"),
)
STEPS = (
    Step("moe", HEALTHY, 0, "moe: the cable of mlx5_7 is bad, from here on"),
    Step("dense", HEALTHY, 120, "dense is healthy"),
    *STALLS,
    Step("moe", {"link-flap": ["mlx5_4"]}, 300, "moe: the link of mlx5_4 is down: IBPulseLinkDown"),
    Step("moe", HEALTHY, 60, "moe is healthy"),
    Step("dense", {"trained-down": ["mlx5_5"]}, 240, "dense: mlx5_5 has trained down: IBPulseRailTrainedDown"),
    Step("dense", HEALTHY, 60, "dense is healthy"),
    Step("dense", {"slow-rail": {"mlx5_2": 0.5}}, 300, "dense: mlx5_2 carries half its traffic: IBPulseRailSlow"),
    Step("dense", {"workload": "idle"}, 300, "dense: the training stops, of which no job is known: no alert"),
    Step("dense", HEALTHY, 60, "dense is healthy"),
    Step("idle", {"vanish": ["mlx5_7"]}, 300, "idle: mlx5_7 is gone: IBPulseRailMissing"),
    Step("idle", HEALTHY, 60, "idle is healthy"),
)


def tell(fabrics: Path, step: Step) -> None:
    """Set the faults of a step's node; they replace its previous faults, except those that last."""
    path = fabrics / step.node / "faults.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**LASTING.get(step.node, {}), **step.control}))
    # atomically: the fabric may read at any time
    new.replace(path)


def break_things(fabrics: Path, steps: Sequence[Step], stop: threading.Event) -> None:
    """Wait until all fabrics exist, then repeat the steps until `stop`; every node is healthy at the end."""
    nodes = {step.node for step in steps}
    while not all((fabrics / node).is_dir() for node in nodes):
        if stop.wait(0.2):
            return
    try:
        while not stop.is_set():
            for step in steps:
                print(step.text, flush=True)
                tell(fabrics, step)
                if stop.wait(step.seconds):
                    return
    finally:
        for node in nodes:
            tell(fabrics, Step(node, HEALTHY, 0, ""))


def main(words: Sequence[str]) -> int:
    """Inject faults into the fabrics in the given directory until SIGTERM or SIGINT; return the exit code."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    break_things(Path(words[0]), STEPS, stop)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
