"""Where the boards break rules of grafana/dashboard-linter on purpose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.models import dashboard as model


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule that a board breaks on purpose; an empty panel means the board itself."""

    rule: str
    reason: str
    panel: str = ""


SCRAPE_JOB = Breach("template-job-rule", "The label is Scrape job, because people take a job for a training job.")
ONE_NODE = Breach("template-instance-rule", "The board is about one node: rails have the same names on all nodes.")
NODES_OF_JOB = Breach("template-instance-rule", "All nodes of the job are a list, so that no other node is read.")
ELSEWHERE = "It reads alerts, or a recording that sums over nodes, which do not have this label."


def unscoped(panels: Sequence[model.Panel], reason: str = ELSEWHERE) -> list[Breach]:
    """The breaches of panels with a selector that does not follow the variables `job` or `instance`."""
    return [
        Breach(f"target-{label}-rule", reason, panel.title or "")
        for label in ("job", "instance")
        for panel in panels
        if any(f'{label}=~"${label}"' not in selector for selector in _selectors(panel))
    ]


def _selectors(panel: model.Panel) -> Iterator[str]:
    for target in panel.targets or []:
        yield from re.findall(r"\{[^{}]*\}", getattr(target, "expr", ""))
