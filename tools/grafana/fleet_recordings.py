"""The recordings of all nodes together, and the coverage of the fleet by exporters."""

from __future__ import annotations

from tools.grafana.rule_levels import EXPORTERS, FLEET, NODE, Recording, newest, targets

BAD = ("bad", "down", "idle", "missing", "slow", "trained_down")
DAILY = {
    "link_events": "Times that a link went down",
    "errors": "Errors of links and packets",
}
WITH_RAILS = f"({newest('ibpulse_node_rails', NODE)} > 0 or {newest('ibpulse_node_expected_rails', NODE)} > 0)"
# of clusters that have exporters
EXPECTED = f"(max by (cluster, node) (<expected_nodes>) and on (cluster) {targets()})<unless>"
NAMED, UNNAMED = (newest(targets(f', node{sign}""'), NODE) for sign in ("!=", "="))
# without a label `node`, the host in `instance` is compared
NODES_UP = (
    "max by (cluster, node) (\n"
    f"    ({NAMED} == 1)\n"
    f'    or (label_replace({UNNAMED}, "node", "$1", "instance", "([^:]+).*") == 1)\n'
    "  )"
)

FLEETS = (
    Recording(
        "job:ibpulse_nodes:count",
        f"count by ({FLEET}) {WITH_RAILS}",
        "Nodes that report and have rails, or should have.",
    ),
    Recording(
        "job_signature:ibpulse_nodes:count",
        f"count by ({FLEET}, signature) (max by ({NODE}, signature) (ibpulse_node_workload_signature) == 1)",
        "Nodes by the signature of their traffic.",
    ),
    Recording(
        "job:ibpulse_bandwidth_bytes:rate5m",
        f"sum by ({FLEET}) (instance:ibpulse_bandwidth_bytes:rate5m)",
        "Bandwidth of all rails of all nodes.",
    ),
    Recording(
        "job_le:ibpulse_node_bandwidth_utilization_ratio_bucket:rate5m",
        f"sum by ({FLEET}, le) (\n"
        f"  max by ({NODE}, pod, le) (rate(ibpulse_node_bandwidth_utilization_ratio_bucket[5m]))\n)",
        "Distribution of the bandwidth utilisation of all nodes, for one heatmap of the fleet.",
    ),
    *(
        Recording(
            f"job:ibpulse_{kind}_rails:sum",
            f"sum by ({FLEET}) (instance:ibpulse_{kind}_rails:sum)",
            f"Rails of all nodes that are {kind.replace('_', ' ')}.",
        )
        for kind in BAD
    ),
    Recording(
        "job:ibpulse_bad_nodes:count",
        f"count by ({FLEET}) (instance:ibpulse_bad_rails:sum > 0)\nor on ({FLEET}) 0 * job:ibpulse_nodes:count",
        "Nodes with a bad rail.",
    ),
    *(
        Recording(
            f"job:ibpulse_{kind}:increase1d",
            # as old as the interval of these recordings, which is as long as Prometheus looks back
            f"sum by ({FLEET}) (last_over_time(instance:ibpulse_{kind}:increase1d[10m]))",
            f"{text} in the last 24 hours, on all nodes.",
        )
        for kind, text in DAILY.items()
    ),
    Recording(
        "job:ibpulse_exporters:count",
        f"count by ({FLEET}) ({EXPORTERS})",
        "Exporters that should be scraped.",
    ),
    Recording(
        "job:ibpulse_exporters_up:count",
        f"sum by ({FLEET}) ({EXPORTERS})",
        "Exporters that can be scraped.",
    ),
    Recording(
        "job:ibpulse_silent_exporters:ratio",
        f"count by ({FLEET}) ({EXPORTERS} == 0<unless>) / on ({FLEET}) count by ({FLEET}) ({EXPORTERS})",
        "Share of the exporters that cannot be scraped and are not in maintenance; absent if there is none.",
    ),
    Recording(
        "cluster:ibpulse_missing_nodes:count",
        f"count by (cluster) (\n  {EXPECTED}\n  unless on (cluster, node) {NODES_UP}\n)\n"
        f"or on (cluster) 0 * count by (cluster) ({EXPECTED})",
        "Nodes that should have an exporter, by another source, and have none that can be scraped.",
    ),
    Recording(
        "cluster:ibpulse_missing_nodes:ratio",
        f"cluster:ibpulse_missing_nodes:count / on (cluster) count by (cluster) ({EXPECTED})",
        "Their share of the nodes that should have an exporter.",
    ),
)
