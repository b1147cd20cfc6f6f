"""Collects the facts of a node in a child process, runs all checks over them, and renders the findings.

The child answers within ten seconds, even if a device hangs.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection, Pipe

from ibpulse.agent.doctor import gpudirect, machine, ports, sample_checks, tree
from ibpulse.agent.doctor.facts import (
    Check,
    Counts,
    DoctorOptions,
    Facts,
    Finding,
    Level,
    Machine,
    SamplingResult,
    TreeFacts,
    checks_of,
    worst_level,
)
from ibpulse.agent.doctor.gpudirect import read_gpudirect
from ibpulse.agent.doctor.machine import read_machine
from ibpulse.agent.doctor.ports import READ_TWICE, join_counts, read_counts
from ibpulse.agent.doctor.samples import find_daemon, read_daemon_samples, read_event_facts, take_samples
from ibpulse.agent.doctor.tree import read_tree
from ibpulse.agent.sampler import lane
from ibpulse.agent.sampler.lane import StartProcess, start_sampler
from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.clocks import Clock
from ibpulse.base.document import hang
from ibpulse.base.errors import FabricError, IbpulseError
from ibpulse.base.text import count_text, escape_controls, names_text
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
    program = f"from ibpulse.agent.doctor.examination import main; main({theirs.fileno()})"
    child = lane.PipedProcess([sys.executable, "-c", program], (theirs.fileno(),))
    theirs.close()
    facts = None
    with ours, suppress(EOFError, OSError):
        ours.send(request)
        facts = ours.recv() if ours.poll(MAX_SECONDS) else None
    try:
        child.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
    # a message is logged when nothing follows it
    for _ in range(2):
        child.poll()
    if facts is None:
        raise FabricError("the process that examines the devices did not answer; see its own message above")
    assert isinstance(facts, Facts)
    return facts


def main(descriptor: int) -> None:
    """Receive the request over this descriptor, and send the facts."""
    # the findings cover everything that the daemon's parts would log, except messages of samplers
    logging.getLogger().setLevel(logging.CRITICAL + 1)
    logging.getLogger(lane.__name__).setLevel(logging.ERROR)
    with Connection(descriptor) as connection, suppress(KeyboardInterrupt):
        connection.send(asyncio.run(find_facts(connection.recv())))


NOT_JUDGED = "Not judged: the tree is not a kernel's sysfs, so this machine is not the node."
CHECKS: tuple[Check, ...] = tuple(
    one for module in (tree, ports, gpudirect, sample_checks, machine) for one in checks_of(module)
)

WIDTH = 118
COLOURS = {Level.SKIP: "2", Level.OK: "32", Level.WARN: "33", Level.FAIL: "31"}
DOCUMENT_VERSION = 1
_WORDS = {Level.OK: "OK: nothing to do", Level.WARN: "WARN", Level.FAIL: "FAIL"}


def examine(facts: Facts, names: Collection[str] = ()) -> tuple[Finding, ...]:
    """Findings of the named checks, or of all checks if `names` is empty, in the order of `CHECKS`."""
    chosen = [check for check in CHECKS if not names or check.name in names]
    return tuple(_file(finding, check, facts) for check in chosen for finding in check.find(facts))


def _file(finding: Finding, check: Check, facts: Facts) -> Finding:
    """The finding with the name of its check as topic; not judged if it is about a machine that is not the node."""
    if check.of_machine and not facts.tree.is_kernel and finding.level is not Level.OK:
        finding = replace(finding, level=Level.SKIP, meaning=NOT_JUDGED, advice="")
    return replace(finding, topic=check.name)


def page(findings: Sequence[Finding], title: str = "", *, colour: bool = False) -> str:
    """The findings as text, one line each, with meaning and advice if not OK, and the verdict at the end.

    Findings that differ only in their subject share one line.
    """
    lines = [escape_controls(title), ""] if title else []
    rows = [row for finding, subjects in merge(findings) for row in _rows(finding, subjects)]
    for row, text in zip(rows, hang(rows, WIDTH), strict=True):
        word = row[0].strip()
        lines.append(text.replace(word, f"\033[{COLOURS[Level[word]]}m{word}\033[0m", 1) if colour and word else text)
    lines += ["", verdict(findings)]
    return "\n".join(lines) + "\n"


def merge(findings: Sequence[Finding]) -> list[tuple[Finding, tuple[str, ...]]]:
    """Findings without their subject, in order of first appearance, each with all its subjects."""
    found: dict[Finding, list[str]] = {}
    for finding in findings:
        found.setdefault(replace(finding, subject=""), []).append(finding.subject)
    return [(finding, tuple(filter(None, subjects))) for finding, subjects in found.items()]


def verdict(findings: Sequence[Finding]) -> str:
    """The last line of the page: the worst level, and the number of failures and warnings."""
    counts = Counter(finding.level for finding in findings)
    worst = worst_level(findings)
    if worst is Level.OK:
        return f"verdict: {_WORDS[worst]}"
    told = [count_text(counts[level], word) for level, word in ((Level.FAIL, "failure"), (Level.WARN, "warning"))]
    return f"verdict: {_WORDS[worst]} ({', '.join(text for text in told if not text.startswith('0 '))})"


def document(findings: Sequence[Finding], about: Mapping[str, object]) -> dict[str, object]:
    """The findings as JSON values: `version`, `verdict`, the items of `about`, and `findings`."""
    return {
        "version": DOCUMENT_VERSION,
        "verdict": worst_level(findings).name,
        **about,
        "findings": [asdict(finding) | {"level": finding.level.name} for finding in findings],
    }


def _rows(finding: Finding, subjects: Sequence[str]) -> list[tuple[str, ...]]:
    """Level, topic and sentence of a finding, then its meaning and advice; a sentence is the last cell of its row."""
    # sentences are about one subject
    each = "each " if len(subjects) > 1 and finding.sentence[:1].islower() else ""
    text = f"{names_text(subjects)}: {each}{finding.sentence}" if subjects else finding.sentence
    more = (("means", finding.meaning), ("do", finding.advice))
    # columns of one width, so that the page of a watch stays where it is
    level, topic = f"{finding.level.name:4}", f"{finding.topic:10}"
    shown = [("", "", f"{label:5}", told) for label, told in more if told]
    return [(level, topic, text), *shown]
