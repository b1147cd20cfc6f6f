"""The check of the running daemon's event log."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.agent.doctor.facts import EventFacts, Facts
from ibpulse.agent.doctor.finding import Finding, Level, check, passed
from ibpulse.agent.doctor.port_checks import find_renamed, silent_devices
from ibpulse.base.text import count_text, moment_text

MAX_DOWNS = 2


@check(
    "events",
    detail=f"Only with a running daemon. More than {MAX_DOWNS} link-downs of a port within an hour are a warning. The "
    "check `devices` reports ports that disappeared, with the time from the event log.",
)
def check_events(facts: Facts) -> Iterator[Finding]:
    """The running daemon's event log: renamed and replaced devices, unreadable ports, flapping links, clock steps."""
    log = facts.events
    if log is None:
        return
    if log.problem:
        yield Finding(
            Level.WARN,
            "",
            f"The {log.problem}.",
            "Doctor does not know what happened before it ran.",
            "Run doctor as a user who may read ring.dir, and with the version of the daemon.",
        )
        return
    if not log.events:
        yield passed("", "The event log is empty.")
        return
    findings = [
        *_find_renamed(facts),
        *_find_replaced(log),
        *_find_unreadable(facts, log),
        *_find_flaps(log),
        *_find_steps(log),
    ]
    yield from findings
    if all(finding.level is Level.OK for finding in findings):
        events = count_text(len(log.events), "event")
        yield passed("", f"{events} since {moment_text(min(event.time_ns for event in log.events))}.")


def _find_renamed(facts: Facts) -> Iterator[Finding]:
    for name, (event, new) in find_renamed(facts).items():
        yield Finding(
            Level.WARN,
            name,
            f"was renamed at {moment_text(event.time_ns)}: its GUID is now that of {new}.",
            "Its earlier data has the old name, also in Prometheus.",
            "Make the names permanent with a udev rule, or adapt ports.roles and your queries to the new name.",
        )


def _find_replaced(log: EventFacts) -> Iterator[Finding]:
    for event in {event.subject: event for event in log.recent("replaced")}.values():
        yield Finding(
            Level.WARN,
            event.subject,
            f"is another device since {moment_text(event.time_ns)}: {event.text.partition(': ')[2]}.",
            "Earlier data with its name, also in Prometheus, is that of the device before.",
            "If no card was replaced, make the names permanent with a udev rule.",
        )


def _find_unreadable(facts: Facts, log: EventFacts) -> Iterator[Finding]:
    here, silent = {str(port.id) for port in facts.fabric.ports}, silent_devices(facts)
    for name, event in log.unreadable_ports().items():
        # the check of the devices reports silent ones
        if name in here and event.device not in silent:
            reason = event.text.removeprefix(f"{name}: ").rstrip(".")
            yield Finding(
                Level.WARN,
                name,
                f"cannot be read by the daemon since {moment_text(event.time_ns)}: {reason}.",
                "Its samples or its state are missing since then.",
                "Check the kernel log for errors from its driver. If doctor can read it, check the daemon's user.",
            )


def _find_flaps(log: EventFacts) -> Iterator[Finding]:
    last = {event.subject: event for event in log.recent("link-down", "link-flap")}
    for name, downs in log.link_downs().items():
        sentence = f"went down {count_text(downs, 'time')} in the last hour, last at {moment_text(last[name].time_ns)}."
        if downs > MAX_DOWNS:
            yield Finding(
                Level.WARN,
                name,
                sentence,
                "While a link is down its traffic stops, and the job waits or fails.",
                "Check the cable, the transceiver and the switch port.",
            )
        else:
            yield passed(name, sentence)


def _find_steps(log: EventFacts) -> Iterator[Finding]:
    steps = log.recent("clock-step")
    if steps:
        yield Finding(
            Level.WARN,
            "",
            f"The wall clock was stepped {count_text(len(steps), 'time')} in the last hour, last at "
            f"{moment_text(steps[-1].time_ns)}.",
            "Each step leaves missing or repeated data in every history.",
            "Configure the time service to slew the clock instead of stepping it.",
        )
