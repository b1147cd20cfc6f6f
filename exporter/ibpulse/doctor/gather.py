"""Gathers all facts of a node in a child process, within ten seconds whatever a device does."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ibpulse.doctor.facts import DoctorOptions, Facts, Look, Machine, TreeFacts
from ibpulse.doctor.fixture import TreeCopy, copy_tree
from ibpulse.doctor.machine_facts import read_machine
from ibpulse.doctor.sampling import find_daemon, look_alone, look_at_daemon
from ibpulse.doctor.tree_facts import TELLING, PortCounts, join_counts, read_counts, read_tree
from ibpulse.errors import FabricError, IbpulseError
from ibpulse.model import Fabric, PortId
from ibpulse.sampler.supervisor import SupervisorOptions
from ibpulse.sysfs.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Order:
    """What the child is to do: how to look, with which inventory and sampler, and whether the tree is to be copied."""

    options: DoctorOptions
    inventory: Inventory
    sampling: SupervisorOptions
    with_tree: bool = False


async def gather_facts(order: Order) -> Facts:
    """All that can be found out now; a device that does not answer is named, and holds up nothing."""
    options, inventory = order.options, order.inventory
    fabric = await asyncio.to_thread(inventory.scan)
    (tree, machine, begin), (look, no_look) = await asyncio.gather(
        asyncio.to_thread(_read_still, options, fabric), _look(order, fabric)
    )
    end = await asyncio.to_thread(read_counts, options.sysfs, fabric.ports)
    return Facts(options, fabric, tree, look, no_look, join_counts(begin, end), machine)


def _read_still(options: DoctorOptions, fabric: Fabric) -> tuple[TreeFacts, Machine, Mapping[PortId, PortCounts]]:
    """What stands still while the samples are taken, and the counters at their begin."""
    begin = read_counts(options.sysfs, fabric.ports, TELLING)
    sampled = sum(port.source is not None for port in fabric.ports)
    return read_tree(options, fabric), read_machine(options, sampled), begin


async def _look(order: Order, fabric: Fabric) -> tuple[Look | None, str]:
    """The look, or why there is none."""
    options, inventory = order.options, order.inventory
    if not options.look:
        return None, "it was not asked for"
    if not any(port.source for port in fabric.ports):
        return None, "no port counts bytes"
    daemon = await asyncio.to_thread(find_daemon, options)
    try:
        if daemon is None:
            return await look_alone(inventory, order.sampling, options), ""
        return await look_at_daemon(daemon, inventory, options), ""
    except IbpulseError as error:
        return None, str(error)


# Scan, look, the end of a sampler that hangs, counters, tree: each has its own deadline, well within this together.
LONGEST_SECONDS = 20.0
LENGTH_BYTES = 8
ENDING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the child found; `tree` is None when it was not asked for."""

    facts: Facts
    tree: TreeCopy | None = None


def gather_apart(order: Order) -> Gathered:
    """What a child process gathered; whether that process can end is nobody's concern.

    Raises:
        FabricError: it gave no answer; its own message is on standard error.
    """
    command = [sys.executable, "-c", "import sys; from ibpulse.doctor.gather import main; sys.exit(main())"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as orders:
            orders.write(pickle.dumps(order))
        deadline = time.monotonic() + LONGEST_SECONDS
        length = int.from_bytes(_read(process.stdout.fileno(), LENGTH_BYTES, deadline), "little")
        answer = pickle.loads(_read(process.stdout.fileno(), length, deadline))
    finally:
        process.stdout.close()
        _let_go(process)
    assert isinstance(answer, Gathered)
    return answer


def _read(descriptor: int, length: int, deadline: float) -> bytes:
    """So many bytes of a pipe that others may hold open."""
    data = b""
    while len(data) < length:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(descriptor, min(1 << 20, length - len(data))) if ready else b""
        if not part:
            raise FabricError("the process that looks at the devices gave no answer; its own message is above")
        data += part
    return data


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Let the child end; one that hangs in a read ends when the device answers."""
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        # its end is awaited by nobody
        process.returncode = 0


def gather(order: Order) -> Gathered:
    """What the order asks for, found by this process."""
    facts = asyncio.run(gather_facts(order))
    devices = [name for name in facts.tree.admitted if name not in facts.tree.silent]
    tree = copy_tree(order.options.sysfs, facts.fabric, devices) if order.with_tree else None
    return Gathered(facts, tree)


def main() -> int:
    """Take the order from standard input, and hand over what was found on standard output."""
    order = pickle.load(sys.stdin.buffer)
    assert isinstance(order, Order)
    # the sampler inherits standard output, which is to hold nothing but the answer
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # what the daemon's parts would log is told by the findings
    logging.disable(logging.CRITICAL)
    try:
        answer = pickle.dumps(gather(order))
    except KeyboardInterrupt:
        return 130
    with os.fdopen(answers, "wb") as stream:
        stream.write(len(answer).to_bytes(LENGTH_BYTES, "little") + answer)
    return 0
