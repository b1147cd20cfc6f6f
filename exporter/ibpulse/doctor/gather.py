"""All facts of a node, gathered within ten seconds whatever a device does. It must not judge them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ibpulse.doctor.counts import TELLING, PortCounts, join_counts, read_counts
from ibpulse.doctor.facts import Facts, Look, Machine, TreeFacts
from ibpulse.doctor.look import find_daemon, look_alone, look_at_daemon
from ibpulse.doctor.machine import read_machine
from ibpulse.doctor.options import DoctorOptions
from ibpulse.doctor.tree import read_tree
from ibpulse.errors import IbpulseError
from ibpulse.model import Fabric, PortId
from ibpulse.sysfs.inventory import Inventory


async def gather_facts(options: DoctorOptions) -> Facts:
    """All that can be found out now; a device that does not answer is named, and holds up nothing."""
    inventory = Inventory(options.sysfs, options.include, options.exclude, options.rails, overrides=options.overrides)
    fabric = await asyncio.to_thread(inventory.scan)
    (tree, machine, begin), (look, no_look) = await asyncio.gather(
        asyncio.to_thread(_read_still, options, fabric), _look(options, inventory, fabric)
    )
    end = await asyncio.to_thread(read_counts, options.sysfs, fabric.ports)
    return Facts(options, fabric, tree, look, no_look, join_counts(begin, end), machine)


def _read_still(options: DoctorOptions, fabric: Fabric) -> tuple[TreeFacts, Machine, Mapping[PortId, PortCounts]]:
    """What stands still while the samples are taken, and the counters at their begin."""
    begin = read_counts(options.sysfs, fabric.ports, TELLING)
    sampled = sum(port.source is not None for port in fabric.ports)
    return read_tree(options, fabric), read_machine(options, sampled), begin


async def _look(options: DoctorOptions, inventory: Inventory, fabric: Fabric) -> tuple[Look | None, str]:
    """The look, or why there is none."""
    if not options.look:
        return None, "it was not asked for"
    if not any(port.source for port in fabric.ports):
        return None, "no port counts bytes"
    daemon = await asyncio.to_thread(find_daemon, options)
    try:
        if daemon is None:
            return await look_alone(inventory, options), ""
        return await look_at_daemon(daemon, inventory, options), ""
    except IbpulseError as error:
        return None, str(error)
