"""One alert: its expression, its thresholds, and how much it matters."""

from __future__ import annotations

from dataclasses import dataclass

from tools.grafana.rule_levels import NODE
from tools.grafana.rule_numbers import Threshold, fixed

INSTANCE = "<$labels.instance>"
DEVICE_NAME = f"<$labels.device> on {INSTANCE}"
PORT_NAME = f"<$labels.device>:<$labels.port> on {INSTANCE}"
PLACE = ("cluster", "instance", "device", "port")


def asked(query: str, level: str = NODE) -> str:
    """What a text asks of Prometheus about the node or port of its alert; `HERE` in the query are its labels."""
    labels = [name for name in PLACE if name in level.split(", ")]
    here = ",".join(f"{name}='%s'" for name in labels)
    values = " ".join(f"$labels.{name}" for name in labels * query.count("HERE"))
    return f'query (printf "{query.replace("HERE", here)}" {values})'


AT_ONCE = fixed("at_once", "0s", "The expression already covers a time window.")
KEEP = Threshold(
    "keep_for",
    "5m",
    "Alerts about a present state stay on through a failed scrape, a replaced pod or a short evaluation.",
)
KEEP_CAUSE = Threshold(
    "keep_cause_for",
    "8m",
    "Alerts that silence others outlast them, so that the end of a cause is not followed by news of its consequences.",
)
USED = f"on ({NODE}) (instance:ibpulse_used:bool == 1)"
"""The condition under which a fault on a node costs somebody a job."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: `hold` is its `for`, `numbers` are its other thresholds, `board` is the dashboard that shows it.

    With `when`, the right side of `and`, the alert has its severity only where that holds, and `otherwise` elsewhere.
    `keep` says that it keeps firing for a while, which only expressions over a window of counters alone do not need;
    `of_node` that it is silent about a node in maintenance, `pushed` that the gateway pushes it as well, with the same
    labels.
    """

    name: str
    severity: str
    expr: str
    hold: Threshold
    summary: str
    description: str
    numbers: tuple[Threshold, ...] = ()
    board: str = "ibpulse-node"
    when: str = ""
    otherwise: str = ""
    keep: bool = True
    of_node: bool = True
    pushed: bool = False
