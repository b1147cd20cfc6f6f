"""Collects all facts of a node in a child process, within ten seconds even if a device hangs."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe

from ibpulse.agent.doctor.facts import Counts, DoctorOptions, Facts, Machine, SamplingResult, TreeFacts
from ibpulse.agent.doctor.gpudirect import read_gpudirect
from ibpulse.agent.doctor.machine import read_machine
from ibpulse.agent.doctor.ports import READ_TWICE, join_counts, read_counts
from ibpulse.agent.doctor.samples import find_daemon, read_daemon_samples, read_event_facts, take_samples
from ibpulse.agent.doctor.tree import read_tree
from ibpulse.agent.sampler import piped_process
from ibpulse.agent.sampler.lane import StartProcess, start_sampler
from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.clocks import Clock
from ibpulse.base.errors import FabricError, IbpulseError
from ibpulse.core.model import Fabric, PortId
from ibpulse.core.ring.file import RingFile

# Scan, sampling, stopping a hung sampler, counters, tree: each has its own deadline, and their sum is well below this.
MAX_SECONDS = 20.0
ENDING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class FactsRequest:
    """Input of the child process."""

    options: DoctorOptions
    inventory: Inventory
    sampling: SupervisorOptions


async def find_facts(request: FactsRequest, clock: Clock = time, start_process: StartProcess = start_sampler) -> Facts:
    """All facts of the node. A device that does not answer is reported as such and delays nothing else."""
    options, inventory = request.options, request.inventory
    fabric = await asyncio.to_thread(inventory.scan)
    daemon = await asyncio.to_thread(find_daemon, options, clock)
    (tree, machine, begin), gpudirect, (sampling, no_sampling) = await asyncio.gather(
        asyncio.to_thread(_read_still, options, fabric),
        asyncio.to_thread(read_gpudirect, options, fabric),
        _sample(request, fabric, daemon, clock, start_process),
    )
    end = await asyncio.to_thread(read_counts, options.sysfs, fabric.ports)
    events = await asyncio.to_thread(read_event_facts, daemon.path.parent, clock) if daemon else None
    return Facts(options, fabric, tree, sampling, no_sampling, join_counts(begin, end), machine, events, gpudirect)


def _read_still(options: DoctorOptions, fabric: Fabric) -> tuple[TreeFacts, Machine, Mapping[PortId, Counts]]:
    """Facts of the tree and the machine, and the counters before sampling."""
    begin = read_counts(options.sysfs, fabric.ports, READ_TWICE)
    sampled = sum(port.source is not None for port in fabric.ports)
    return read_tree(options, fabric), read_machine(options, sampled), begin


async def _sample(
    request: FactsRequest, fabric: Fabric, daemon: RingFile | None, clock: Clock, start_process: StartProcess
) -> tuple[SamplingResult | None, str]:
    """The samples, or None and the reason."""
    options, inventory = request.options, request.inventory
    if not options.sample:
        return None, "sampling was not requested"
    if not any(port.source for port in fabric.ports):
        return None, "no port has byte counters"
    try:
        if daemon is None:
            return await take_samples(inventory, request.sampling, options, clock, start_process), ""
        return await read_daemon_samples(daemon, inventory, options), ""
    except IbpulseError as error:
        return None, str(error)


def find_facts_in_child(request: FactsRequest) -> Facts:
    """Collect the facts in a child process. A child that hangs in a read is abandoned.

    The kernel ends a process only when its threads leave a driver; until then, its parent waits, and so does who reads
    its streams.

    Raises:
        FabricError: the child did not answer; its own message is logged.
    """
    ours, theirs = Pipe()
    program = f"from ibpulse.agent.doctor.child_process import main; main({theirs.fileno()})"
    child = piped_process.PipedProcess([sys.executable, "-c", program], (theirs.fileno(),))
    theirs.close()
    facts = None
    with ours, suppress(EOFError, OSError):
        ours.send(request)
        facts = ours.recv() if ours.poll(MAX_SECONDS) else None
    try:
        child.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
    child.poll()
    if facts is None:
        raise FabricError("the process that examines the devices did not answer; see its own message above")
    assert isinstance(facts, Facts)
    return facts


def main(descriptor: int) -> None:
    """Receive the request over this descriptor, and send the facts."""
    # the findings cover everything that the daemon's parts would log, except messages of samplers
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    logging.getLogger(piped_process.__name__).setLevel(logging.ERROR)
    with Connection(descriptor) as connection, suppress(KeyboardInterrupt):
        connection.send(asyncio.run(find_facts(connection.recv())))
