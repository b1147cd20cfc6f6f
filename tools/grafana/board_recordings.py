"""Recordings that only boards read: the faults, port by port, and the instrument's own health, node by node."""

from __future__ import annotations

from tools.grafana.rule_levels import DOWN_RAILS, FLEET, NODE, PORT, Recording, newest, summed

READ_ERRORS = summed("rate", "ibpulse_sampler_read_errors_total", "5m")


def _trouble() -> str:
    states = {4: DOWN_RAILS} | {
        code: f"{newest(f'ibpulse_port_{name}')} == 1"
        for code, name in {3: "trained_down", 2: "rail_idle", 1: "rail_slow"}.items()
    }
    # `and` and `==` bind less tightly than `*`; group is 1 for whatever is there
    return f"\nor on ({PORT}) ".join(f"{code} * group by ({PORT}) ({expr})" for code, expr in states.items())


def _distribution(name: str, text: str) -> Recording:
    return Recording(
        f"job_le:ibpulse_sampler_{name}_seconds_bucket:rate5m",
        f"sum by ({FLEET}, le) (\n  max by ({NODE}, pod, le) (rate(ibpulse_sampler_{name}_seconds_bucket[5m]))\n)",
        f"Distribution of the {text} of the samplers of all nodes.",
    )


BOARDS = (
    Recording(
        "instance_device_port:ibpulse_bad_rail:state",
        _trouble(),
        "State of a rail in trouble: 4 down, 3 trained down, 2 idle, 1 slow; absent for every other rail.",
    ),
    Recording(
        "instance:ibpulse_quarantined_devices:sum",
        f"sum by ({NODE}) (max by ({NODE}, device) (ibpulse_device_quarantined))",
        "Devices that are sampled by a process of their own because a read hung.",
    ),
    Recording(
        "instance:ibpulse_set_aside_ports:sum",
        f"sum by ({NODE}) ({newest('ibpulse_port_left_alone')})",
        "Ports that are only retried now and then because their files kept failing.",
    ),
    Recording(
        "instance:ibpulse_read_errors:rate5m",
        f"sum by ({NODE}) ({READ_ERRORS})",
        "Reads of byte counters that failed, per second.",
    ),
    Recording(
        "instance:ibpulse_effective_resolution:ratio",
        f"max by ({NODE}) (\n  {newest('ibpulse_port_effective_resolution_seconds')}\n"
        f"  / on ({PORT}) {newest('ibpulse_port_sampling_interval_seconds')}\n)",
        "Time between two changes of a counter ÷ time between two reads, of the node's most slowly updated port.",
    ),
    _distribution("lateness", "wake-up delay"),
    _distribution("tick_duration", "time to read all ports"),
)
