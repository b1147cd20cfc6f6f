"""`ibpulse simulate DIR`: a sysfs tree whose counters advance, until stopped."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ibpulse.agent.config import Settings
from ibpulse.agent.sampler.kernel import die_with_parent
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import SECOND_NS, format_duration
from ibpulse.base.values import RATE, RATIO, TIME, Kind
from ibpulse.workbench.simulate.fabric import FAULTS_FILE, SimulatedFabric
from ibpulse.workbench.simulate.faults import FAULTS, parse_faults
from ibpulse.workbench.simulate.fleet import SimulatedFleet, SimulatedNode, different_clocks, plan_nodes
from ibpulse.workbench.simulate.jobs import JOBS_EXAMPLE, JOBS_FOLDER
from ibpulse.workbench.simulate.timeline import Schedule
from ibpulse.workbench.simulate.tree import make_devices
from ibpulse.workbench.simulate.workloads import make_workload

SHAPE: Mapping[str, Kind[Any]] = {"rate": RATE, "period": TIME, "duty": RATIO}
MAX_OFFSET_NS = SECOND_NS


def fabric_flags(arguments: argparse.Namespace, interval_ns: int) -> list[str]:
    """The flags for another process to simulate the same fabric until this one exits."""
    flags = [f"--interval={format_duration(interval_ns)}", f"--parent={os.getpid()}"]
    flags += [f"--{name}={getattr(arguments, name)}" for name in ("workload", "ports", "seed", "jobs")]
    given = ((name, kind, getattr(arguments, name)) for name, kind in SHAPE.items())
    flags += [f"--{name}={kind.text(value)}" for name, kind, value in given if value is not None]
    flags += ["--management"] if arguments.management else []
    if arguments.nodes > 1:
        flags += [f"--nodes={arguments.nodes}", *(f"--clock-offset={offset}" for offset in arguments.clock_offset)]
    return flags + [f"--fault={fault}" for fault in arguments.fault]


def run_simulate(arguments: argparse.Namespace, settings: Settings) -> int:
    """Simulate until SIGINT or SIGTERM."""
    if arguments.parent and die_with_parent(arguments.parent):
        return 1
    workload = make_workload(
        arguments.workload, rate_bytes_per_second=arguments.rate, period_ns=arguments.period, duty=arguments.duty
    )
    nodes = parse_nodes(arguments)
    faults = check_faults(arguments)
    if arguments.jobs > arguments.ports:
        raise ConfigError(
            [f"flag --jobs: {arguments.jobs} jobs need {arguments.jobs} ports; --ports is {arguments.ports}"]
        )
    interval_ns: int = arguments.interval
    announce(arguments, arguments.directory, interval_ns)
    if nodes:
        fleet = SimulatedFleet(
            arguments.directory, nodes, workload, arguments.seed, arguments.ports, interval_ns, arguments.management
        )
        with closing(fleet):
            fleet.build(faults)
            fleet.run(stop_on_signals().is_set)
        return 0
    schedule = Schedule(workload, arguments.seed, arguments.ports, time.time_ns())
    fabric = SimulatedFabric(arguments.directory, schedule, interval_ns, arguments.management, arguments.jobs)
    with closing(fabric):
        fabric.build(time.time_ns(), faults)
        fabric.run(stop_on_signals().is_set)
    return 0


def parse_nodes(arguments: argparse.Namespace, clocks_differ: bool = False) -> tuple[SimulatedNode, ...]:
    """The simulated nodes, none if there is only one.

    Sets the number of ports if it was not given, and the clock offsets of all nodes.
    """
    count = arguments.nodes
    if arguments.ports is None:
        arguments.ports = 8 if count == 1 else 4
    nodes = plan_nodes(count) if count > 1 else ()
    names = [node.name for node in nodes]
    offsets = different_clocks(nodes) if clocks_differ else {}
    wrong = []
    for option in arguments.clock_offset:
        name, _, text = option.partition("=")
        try:
            offset_ns = TIME.parse(text.removeprefix("-"))
        except ValueError as error:
            wrong.append(f"flag --clock-offset: {option!r}: {error}")
            continue
        if name not in names or offset_ns > MAX_OFFSET_NS:
            fix = f"choose {names[0]} to {names[-1]}, and at most 1s" if names else "set --nodes"
            wrong.append(f"flag --clock-offset: {option!r} is not possible; {fix}")
        offsets[name] = -offset_ns if text.startswith("-") else offset_ns
    if count > 1 and arguments.jobs > 1:
        wrong.append(f"flag --jobs: {arguments.jobs} jobs are not possible on several nodes, which share one job")
    if wrong:
        raise ConfigError(wrong)
    signs = {name: "-" if offset_ns < 0 else "" for name, offset_ns in offsets.items()}
    arguments.clock_offset = [
        f"{name}={signs[name]}{format_duration(abs(offset_ns))}" for name, offset_ns in offsets.items()
    ]
    return plan_nodes(count, offsets) if count > 1 else ()


def announce(arguments: argparse.Namespace, tree: Path, interval_ns: int) -> None:
    """Print what is simulated, and how to change it."""
    what = "two jobs" if arguments.jobs == 2 else arguments.workload
    where = (
        f"{arguments.nodes} nodes with {arguments.ports} ports each"
        if arguments.nodes > 1
        else f"{arguments.ports} ports"
    )
    print(f"{what} on {where}, every {format_duration(interval_ns)}, in {tree}")
    if arguments.nodes > 1:
        tree /= "node1"
    file = shlex.quote(str(tree / FAULTS_FILE))
    last, other = (f"mlx5_{max(0, arguments.ports - back)}" for back in (1, 2))
    fault = {"slow-rail": {last: 0.5}, "link-flap": [other]} if arguments.ports > 1 else {"slow-rail": {last: 0.5}}
    workload = {"workload": {"name": "dense" if arguments.workload == "moe" else "moe"}}
    print(f"inject faults ({', '.join(FAULTS)}):\n  echo {shlex.quote(json.dumps(fault))} > {file}")
    print(f"end them, and change the workload:\n  echo {shlex.quote(json.dumps(workload))} > {file}", flush=True)
    if arguments.jobs or arguments.nodes > 1:
        jobs = shlex.quote(f'{{"jobs": {JOBS_EXAMPLE}}}')
        print(f"run other jobs, whose documents are in {tree / JOBS_FOLDER}:\n  echo {jobs} > {file}", flush=True)


def check_faults(arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The faults document for the options of the fabric, whose devices must exist."""
    document = parse_fault_options(arguments.fault)
    devices = [device.name for device in make_devices(arguments.ports, arguments.management)]
    parse_faults(json.dumps(document), devices, "flag --fault")
    return document


def parse_fault_options(options: Sequence[str]) -> dict[str, dict[str, float]]:
    """The faults document for options like `slow-rail=mlx5_2:0.5`."""
    document: dict[str, dict[str, float]] = {}
    wrong = []
    for option in options:
        name, _, rest = option.partition("=")
        device, _, value = rest.partition(":")
        try:
            document.setdefault(name, {})[device] = float(value) if value else FAULTS[name].default
        except (KeyError, ValueError):
            wrong.append(
                f"flag --fault: {option!r} is not a fault; write FAULT=DEVICE[:VALUE] with one of {', '.join(FAULTS)}"
            )
    if wrong:
        raise ConfigError(wrong)
    return document


def stop_on_signals() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
