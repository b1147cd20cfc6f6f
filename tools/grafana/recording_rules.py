"""The recording rules, which make the fleet dashboards and the alerts cheap: all groups in their order.

Names are level:metric:operations. Every rule keeps `cluster` and `node` (where there are any), `job` and `instance`, or
has a name that shows that it sums over instances. The label `job` is that of the scrape job; `job_id` is that of a
training job. `<name>` is a threshold to fill in.
"""

from __future__ import annotations

from tools.grafana import daily_recordings, job_recordings, node_recordings
from tools.grafana.board_recordings import BOARDS
from tools.grafana.daily_recordings import DAYS
from tools.grafana.fleet_recordings import FLEETS
from tools.grafana.job_recordings import JOBS, PACE
from tools.grafana.node_recordings import NODES
from tools.grafana.rule_levels import JOB, NODE, PORT, Recording

__all__ = ["DAILY", "GROUPS", "JOB", "NODE", "PORT", "THRESHOLDS", "Recording"]

THRESHOLDS = (*node_recordings.THRESHOLDS, *job_recordings.THRESHOLDS)
DAILY = "ibpulse-days"
GROUPS = {
    DAILY: DAYS,
    "ibpulse-pace": PACE,
    "ibpulse-nodes": NODES,
    "ibpulse-fleet": FLEETS,
    "ibpulse-jobs": JOBS,
    "ibpulse-boards": BOARDS,
}
INTERVALS = {DAILY: daily_recordings.INTERVAL, "ibpulse-pace": "<alert_interval>"}
"""The intervals of groups that have not the one of all; the windows of the group `DAILY` are as long."""
