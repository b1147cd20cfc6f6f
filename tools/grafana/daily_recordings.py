"""The recordings that remember a day: what links and counters did today, and how many rails a node had.

They are evaluated every five minutes, each over the five minutes before, so that their sums over a day are exact and
cheap: 288 samples per node instead of 5,760 for each counter of each port.
"""

from __future__ import annotations

from tools.grafana.rule_levels import NODE, PORT, Recording, newest, since, summed

INTERVAL = "5m"
DAY = "1d"
ERRORS = "|".join(
    f"ibpulse_{name}_total"
    for name in (
        "symbol_error",
        "link_error_recovery",
        "port_errors_received",
        "packet_sequence_errors",
        "local_ack_timeout_errors",
        "out_of_buffer_drops",
        "rx_icrc_encapsulated_errors",
    )
)
# changes of state begin at 0 with the process, so they are second choice
LINK_DROPS = (
    f"{since('ibpulse_link_downed_total', INTERVAL)}\n"
    f"  or on ({PORT}) floor({summed('increase', 'ibpulse_port_state_changes_total', INTERVAL)} / 2)"
)


def _daily(kind: str, expr: str, text: str) -> tuple[Recording, Recording]:
    """The sum in each interval and the sum over the last day."""
    name = f"instance:ibpulse_{kind}:increase"
    return (
        Recording(f"{name}{INTERVAL}", f"sum by ({NODE}) (\n  {expr}\n)", f"{text} in the last five minutes."),
        Recording(
            f"{name}{DAY}",
            f"max by ({NODE}) (sum_over_time({name}{INTERVAL}[{DAY}]))",
            f"{text} in the last 24 hours.",
        ),
    )


def _highest(kind: str, expr: str, text: str) -> tuple[Recording, Recording]:
    """The value and its maximum over the last day."""
    name = f"instance:ibpulse_{kind}"
    return (
        Recording(f"{name}:max", expr, f"{text}."),
        Recording(f"{name}:max1d", f"max by ({NODE}) (max_over_time({name}:max[{DAY}]))", f"{text}, most of a day."),
    )


DAYS = (
    *_daily(
        "errors",
        since(f'{{__name__=~"{ERRORS}"}}', INTERVAL, f"{PORT}, counter"),
        "Errors of links and packets on the node",
    ),
    *_daily("link_events", LINK_DROPS, "Times that a link of the node went down"),
    *_highest("expected_rails", newest("ibpulse_node_expected_rails", NODE), "Rails that the node should have"),
    *_highest("ports", f"count by ({NODE}) (count by ({PORT}) (ibpulse_port_info))", "Ports of the node"),
)
