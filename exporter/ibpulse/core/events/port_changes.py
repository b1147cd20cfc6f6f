"""The state of a port as it was just seen, and the changes from its state before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ibpulse.base.units import format_rate
from ibpulse.core.model import Port, PortState

UNREADABLE, HUNG, DISAPPEARED, NO_COUNTERS = "unreadable", "hung", "disappeared", "no-counters"


@dataclass(frozen=True, slots=True)
class SeenPort:
    """A port as it was just seen.

    `time_ns` is the wall time of the last reading of its state, `previous_ns` of the one before it, 0 if there was
    none. `problem` is a word of `PROBLEMS` or empty, `reason` a sentence. Without `link_known` the state of the link
    could not be read, and the last one stays. `downs` is the value of `link_downed`.
    """

    port: Port
    time_ns: int
    previous_ns: int = 0
    physical: str = ""
    stride: int = 1
    problem: str = ""
    reason: str = ""
    downs: int | None = None
    link_known: bool = True


@dataclass(frozen=True, slots=True)
class PortChange:
    """One change of a port: the kind of its event, a sentence, and the state after it."""

    kind: str
    text: str
    after: PortState


def state_of(seen: SeenPort, before: PortState | None) -> PortState:
    """The state of a port; while its link is down or unknown, the last known line rate stays."""
    port, known = seen.port, before is None or seen.link_known
    rate = port.rate_bytes_per_second
    if before is not None and rate is None and not (port.active and known):
        rate = before.rate_bytes_per_second
    problem = seen.problem or (NO_COUNTERS if port.source is None else "")
    if before is not None and not known:
        return replace(
            before, rate_bytes_per_second=rate, rail=port.rail, role=port.role, stride=seen.stride, problem=problem
        )
    return PortState(port.state, seen.physical, port.active, rate, port.rail, seen.stride, problem, port.role)


def find_changes(
    name: str, before: PortState, wanted: PortState, reason: str, interval_ns: int
) -> Iterator[PortChange]:
    """The changes from one state to another, one property after the other; `reason` explains the problem."""
    if before == wanted:
        return
    after = replace(before, active=wanted.active, state=wanted.state, physical=wanted.physical)
    if kind := _kind_of_link_change(before, after):
        words = ", ".join(filter(None, (after.state, after.physical))) or "in an unknown state"
        texts = {
            "link-down": f"link down ({words})",
            "link-up": f"link up ({words})",
            "link-change": f"link is {words}",
        }
        yield PortChange(kind, f"{name}: {texts[kind]}", after)
    before, after = after, replace(after, rate_bytes_per_second=wanted.rate_bytes_per_second)
    if before != after:
        yield PortChange("rate-change", f"{name}: line rate is {_rate_text(after)}, was {_rate_text(before)}", after)
    before, after = after, replace(after, rail=wanted.rail, role=wanted.role)
    if before != after:
        yield PortChange("role-change", f"{name}: role is {after.role}, was {before.role}", after)
    before, after = after, replace(after, problem=wanted.problem)
    if before != after and wanted.problem:
        yield PortChange("unreadable", f"{name}: {reason or wanted.problem}", after)
    elif before != after:
        yield PortChange("readable", f"{name} can be read again", after)
    if after.stride != wanted.stride:
        now, then = (f"{state.stride * interval_ns / 1e6:g} ms" for state in (wanted, after))
        yield PortChange("interval-change", f"{name}: sampled every {now}, was {then}", wanted)


def _kind_of_link_change(before: PortState, after: PortState) -> str:
    if before.active != after.active:
        return "link-up" if after.active else "link-down"
    # an ACTIVE link that retrains keeps its state
    return "link-change" if before != after and not after.active else ""


def _rate_text(state: PortState) -> str:
    rate = state.rate_bytes_per_second
    return "unknown" if rate is None else format_rate(round(rate))
