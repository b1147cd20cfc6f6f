"""`ibpulse doctor`: checks whether this node's measurements can be trusted, and suggests fixes."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ibpulse import __version__
from ibpulse.agent.config import Settings
from ibpulse.agent.doctor import CHECKS, DoctorOptions, Level, document, examine, page, worst_level
from ibpulse.agent.doctor.examination import FactsRequest, find_facts_in_child
from ibpulse.agent.doctor.facts import Facts
from ibpulse.agent.node.node import make_inventory, supervisor_options
from ibpulse.base.document import json_text
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import format_duration

CLEAR = "\033[H\033[2J"


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the findings; returns 1 if a check failed, or warned with --strict, else 0."""
    names = _check_names(arguments.check)
    request = make_request(settings, sample=not arguments.no_look)
    while True:
        code = _run_once(arguments, request, names)
        if arguments.watch is None:
            return code
        time.sleep(arguments.watch / 1e9)
        if arguments.format == "text" and sys.stdout.isatty():
            print(CLEAR, end="")


def _run_once(arguments: argparse.Namespace, request: FactsRequest, names: Sequence[str]) -> int:
    facts = find_facts_in_child(request)
    findings = examine(facts, names)
    if arguments.format == "json":
        indent = None if arguments.watch is not None else 2
        print(json_text(document(findings, _tell_about(facts)), indent=indent, ascii_only=True), flush=True)
    else:
        title = f"ibpulse {__version__} checking {facts.options.sysfs} on Linux {facts.machine.kernel}"
        print(page(findings, title, colour=sys.stdout.isatty()), end="", flush=True)
    least = Level.WARN if arguments.strict else Level.FAIL
    return 1 if worst_level(findings) >= least else 0


def make_request(settings: Settings, *, sample: bool = True) -> FactsRequest:
    """The work of the child process, with the same inventory and sampler as the daemon."""
    options = make_options(settings, sample=sample)
    return FactsRequest(options, make_inventory(settings), supervisor_options(settings))


def make_options(settings: Settings, *, sample: bool = True) -> DoctorOptions:
    """Doctor's options, taken from the settings."""
    return DoctorOptions(
        sysfs=Path(settings.path.sysfs),
        include=tuple(settings.ports.include),
        exclude=tuple(settings.ports.exclude),
        roles=settings.ports.roles,
        interval_ns=settings.sampler.interval,
        history_ns=settings.sampler.history,
        signal_ticks=supervisor_options(settings).signal_ticks,
        scheduler=settings.sampler.scheduler,
        cpu=settings.sampler.cpu,
        ring_dir=Path(settings.ring.dir),
        host=settings.web.listen_address.host,
        port=settings.web.listen_address.port,
        active_bytes_per_second=settings.analysis.active_threshold,
        sample=sample,
        keep=(("capture.dir", Path(settings.capture.dir), settings.capture.min_free),),
    )


def _check_names(given: Sequence[str]) -> tuple[str, ...]:
    known = [check.name for check in CHECKS]
    wrong = [name for name in given if name not in known]
    if wrong:
        raise ConfigError([f"--check={name}: no such check; choose from {', '.join(known)}" for name in wrong])
    return tuple(given)


def _tell_about(facts: Facts) -> dict[str, object]:
    """The header of a document: everything but the findings."""
    sampling = facts.sampling
    return {
        "ibpulse": __version__,
        "python": platform.python_version(),
        "kernel": facts.machine.kernel,
        "sysfs": str(facts.options.sysfs),
        "look": None
        if sampling is None
        else {
            "by_daemon": sampling.by_daemon,
            "seconds": round(sampling.seconds, 3),
            "interval": format_duration(sampling.interval_ns),
        },
    }
