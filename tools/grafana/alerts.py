"""The alerts in their groups. Their runbooks are `docs/runbooks/<name>.md`.

Placeholders in angle brackets are explained in `rule_numbers`. An alert has the labels of its node, and those of the
port, the device or the job where there is one, and no label that changes when a pod is replaced.
"""

from __future__ import annotations

from tools.grafana.alert import Alert
from tools.grafana.fabric_alerts import FABRIC
from tools.grafana.instrument_alerts import INSTRUMENT
from tools.grafana.job_alerts import JOBS

__all__ = ["ALERTS", "COMPONENTS", "GROUPS", "Alert"]

GROUPS = {"ibpulse-traffic": JOBS, "ibpulse-rails": FABRIC, "ibpulse-truth": INSTRUMENT}
COMPONENTS = {"ibpulse-traffic": "job", "ibpulse-rails": "fabric", "ibpulse-truth": "instrument"}
"""The label `component` of the alerts of each group."""
ALERTS = tuple(alert for group in GROUPS.values() for alert in group)
