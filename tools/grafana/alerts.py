"""The alerts in their groups. Their runbooks are `docs/runbooks/<name>.md`.

Placeholders in angle brackets are explained in `rule_numbers`. An alert has the labels of its node, and those of the
port, the device or the job where there is one, and no label that changes when a pod is replaced.
"""

from __future__ import annotations

from tools.grafana.alert import Alert
from tools.grafana.fabric_alerts import FABRIC
from tools.grafana.job_alerts import JOBS
from tools.grafana.rule_levels import EXPORTERS, FLEET, NODE, PORT, targets
from tools.grafana.rule_numbers import Threshold

__all__ = ["ALERTS", "COMPONENTS", "GROUPS", "Alert"]

STATISTICS = f"max by ({NODE}) (ibpulse_build_info)"
SHARE = "job:ibpulse_silent_exporters:ratio > <missing_share>"


def _because(expr: str, reason: str) -> str:
    return f'label_replace({expr}, "reason", "{reason}", "", "")'


UNRELIABLE = Alert(
    "IBPulseUnreliable",
    "warning",
    "\nor ".join(
        (
            f"max by ({PORT}, reason) (ibpulse_unreliable) == 1",
            # a rack without power is one alert, not one for each of its nodes
            _because(f"{EXPORTERS} == 0 unless on ({FLEET}) {SHARE}", "no-answer"),
            _because(f"{EXPORTERS} == 1 unless on ({NODE}) {STATISTICS}", "no-statistics"),
            _because(SHARE, "exporters-missing"),
            _because("cluster:ibpulse_missing_nodes:ratio > <missing_share>", "exporters-missing"),
            _because(f"absent({targets()})", "exporters-missing"),
        )
    ),
    Threshold("unreliable_for", "10m", "Updates, reboots and builds are over by then."),
    "The numbers of ibpulse cannot be trusted, or there are none.",
    "The numbers of <if $labels.instance><$labels.instance><else>a part of the fleet<end> cannot be trusted: "
    "<$labels.reason><if $labels.device>, <$labels.device><end><if $labels.port>:<$labels.port><end>. Jobs are not "
    "affected. First step: `ibpulse doctor` on the node, or, without an answer, the pod and the node itself.",
    (Threshold("missing_share", "0.05", "Single nodes have alerts of their own, and some are always rebooting."),),
)

GROUPS = {"ibpulse-traffic": JOBS, "ibpulse-rails": FABRIC, "ibpulse-truth": (UNRELIABLE,)}
COMPONENTS = {"ibpulse-traffic": "job", "ibpulse-rails": "fabric", "ibpulse-truth": "instrument"}
"""The label `component` of the alerts of each group."""
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)
