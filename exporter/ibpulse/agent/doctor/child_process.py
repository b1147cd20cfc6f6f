"""Collects all facts of a node in a child process, within ten seconds even if a device hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from ibpulse.base.text import escape_controls
from ibpulse.core.model import Fabric, PortId
from ibpulse.core.ring.file import RingFile

# Scan, sampling, stopping a hung sampler, counters, tree: each has its own deadline, and their sum is well below this.
MAX_SECONDS = 20.0
LENGTH_BYTES = 8
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

    Raises:
        FabricError: the child did not answer; its own message is on standard error.
    """
    command = [
        sys.executable,
        "-c",
        "import sys; from ibpulse.agent.doctor.child_process import main; sys.exit(main())",
    ]
    # a hung child keeps its streams open: none of them may be one that another program waits for
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with process.stdin as pipe:
            pipe.write(pickle.dumps(request))
        streams = (process.stdout.fileno(), process.stderr.fileno())
        deadline = time.monotonic() + MAX_SECONDS
        length = int.from_bytes(_read(*streams, LENGTH_BYTES, deadline), "little")
        answer = pickle.loads(_read(*streams, length, deadline))
    finally:
        process.stdout.close()
        _end_child(process)
        _pass_on(process.stderr.fileno())
        process.stderr.close()
    assert isinstance(answer, Facts)
    return answer


def _read(answers: int, messages: int, length: int, deadline: float) -> bytes:
    """Exactly `length` bytes of a pipe that other processes may hold open; meanwhile passes on the child's messages."""
    data = b""
    open_ends = [answers, messages]
    while len(data) < length:
        ready = _readable(open_ends, deadline - time.monotonic())
        if messages in ready and not _pass_on(messages):
            open_ends.remove(messages)
        if ready and answers not in ready:
            continue
        part = os.read(answers, min(1 << 20, length - len(data))) if ready else b""
        if not part:
            raise FabricError("the process that examines the devices did not answer; see its own message above")
        data += part
    return data


def _readable(descriptors: Sequence[int], seconds: float) -> list[int]:
    """The descriptors with something to read, or at their end, after waiting so long at most."""
    # not select(), which takes no descriptor above 1023
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(1000 * max(0.0, seconds))]


def _pass_on(messages: int) -> bool:
    """Write the child's messages so far to standard error; false if it has closed the pipe, or there are none."""
    text = os.read(messages, 1 << 20) if _readable([messages], 0.0) else b""
    sys.stderr.write(escape_controls(text.decode(errors="replace"), keep="\n"))
    sys.stderr.flush()
    return bool(text)


def _end_child(process: subprocess.Popen[bytes]) -> None:
    """Wait for the child to exit, then kill it; a child that hangs in a read exits when the device answers."""
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        # without a return code, Popen would warn that the child still runs
        process.returncode = 0


def _log_only_messages_of_samplers() -> None:
    """Turn off all other logging: the findings cover everything that the daemon's parts would log."""
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    logging.getLogger(piped_process.__name__).setLevel(logging.ERROR)


def main() -> int:
    """Read the pickled request from standard input and write the pickled facts to standard output."""
    request = pickle.load(sys.stdin.buffer)
    assert isinstance(request, FactsRequest)
    # standard output may contain nothing but the answer
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    _log_only_messages_of_samplers()
    try:
        answer = pickle.dumps(asyncio.run(find_facts(request)))
    except KeyboardInterrupt:
        return 130
    with os.fdopen(answers, "wb") as stream:
        stream.write(len(answer).to_bytes(LENGTH_BYTES, "little") + answer)
    return 0
