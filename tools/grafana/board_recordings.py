"""Recordings that only boards read: the faults, port by port."""

from __future__ import annotations

from tools.grafana.rule_levels import DOWN_RAILS, PORT, Recording, newest


def _trouble() -> str:
    states = {4: DOWN_RAILS} | {
        code: f"{newest(f'ibpulse_port_{name}')} == 1"
        for code, name in {3: "trained_down", 2: "rail_idle", 1: "rail_slow"}.items()
    }
    # `and` and `==` bind less tightly than `*`; group is 1 for whatever is there
    return f"\nor on ({PORT}) ".join(f"{code} * group by ({PORT}) ({expr})" for code, expr in states.items())


BOARDS = (
    Recording(
        "instance_device_port:ibpulse_bad_rail:state",
        _trouble(),
        "State of a rail in trouble: 4 down, 3 trained down, 2 idle, 1 slow; absent for every other rail.",
    ),
)
