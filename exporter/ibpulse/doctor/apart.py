"""The facts gathered in a process apart, so that nobody has to wait for its end. It must not judge them.

A process ends with the last of its threads, and one that reads a hung device ends when the device answers: after a
minute or more. So the gathering is done by a child, which hands over what it found; the parent has no such thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import select
import subprocess
import sys
import time
from dataclasses import dataclass

from ibpulse.doctor.facts import Facts
from ibpulse.doctor.fixture import TreeCopy, copy_tree
from ibpulse.doctor.gather import gather_facts
from ibpulse.doctor.options import DoctorOptions
from ibpulse.errors import FabricError

# Scan, look, the end of a sampler that hangs, counters, tree: each has its own deadline, well within this together.
LONGEST_SECONDS = 20.0
LENGTH_BYTES = 8
ENDING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Order:
    """What the child is to do: how to look, and whether the tree is to be copied."""

    options: DoctorOptions
    with_tree: bool = False


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
    command = [sys.executable, "-c", "import sys; from ibpulse.doctor.apart import main; sys.exit(main())"]
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
    facts = asyncio.run(gather_facts(order.options))
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
