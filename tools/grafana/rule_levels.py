"""Recording rules: the levels at which rules aggregate, and what survives a replaced pod and a second Prometheus.

A scrape adds labels that change when a pod is replaced (`pod`, `container`, `endpoint`), and two Prometheus servers may
store each series twice. Therefore no rule keeps a label that is not in its level.
"""

from __future__ import annotations

from dataclasses import dataclass

NODE = "cluster, job, instance, node"
"""Labels of a node; `job` is the scrape job, `node` and `cluster` may be absent."""
DEVICE = f"{NODE}, device"
PORT = f"{NODE}, device, port"
JOB = "cluster, job, job_id"
"""Labels of a training job, on all its nodes."""
PUSHED_JOB = "cluster, job_id"
"""Those of alerts about a training job that the gateway pushes as well."""
NODE_OF_JOB = f"{NODE}, job_id"
PORT_OF_JOB = f"{PORT}, job_id"
FLEET = "cluster, job"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule; `text` describes its value."""

    record: str
    expr: str
    text: str


def newest(metric: str, level: str = PORT) -> str:
    """The value of a gauge at a level."""
    return f"max by ({level}) ({metric})"


def summed(function: str, metric: str, window: str, level: str = PORT) -> str:
    """A rate or an increase at a level: pods that followed one another add up, copies of one series do not."""
    return f"sum by ({level}) (max by ({level}, pod) ({function}({metric}[{window}])))"


def since(metric: str, window: str, level: str = PORT, memory: str = "15m") -> str:
    """What counters of the kernel gained since a window ago, exact, across gaps and pods; 0 after a reset.

    Only for counters that go on when the exporter restarts. Sums of consecutive windows neither miss nor repeat
    anything. Several metrics need the label `counter` in the level, which then has their names.
    """
    now, then = metric, f"last_over_time({metric}[{memory}] offset {window})"
    if "counter" in level:
        now, then = (f'label_replace({expr}, "counter", "$1", "__name__", "(.+)")' for expr in (now, then))
    return f"clamp_min({newest(now, level)} - on ({level}) {newest(then, level)}, 0)"


RAILS = newest('ibpulse_port_info{rail="true"}')
"""1 for every port that is a rail."""
DOWN_RAILS = f"{RAILS} and on ({PORT}) ({newest('ibpulse_port_up')} == 0)"


def targets(matchers: str = "") -> str:
    """The series `up` of the exporters; a gateway is no exporter."""
    return f'up{{job=~"<jobs>", job!~".*-gateway"{matchers}}}'


EXPORTERS = newest(targets(), NODE)
"""1 for every exporter that can be scraped, 0 for every other one."""
