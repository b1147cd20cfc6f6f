"""The signs of limits of ports: read from a ring, and as sentences, with what they cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ibpulse.base.text import duration_text, group_remarks, names_text, rate_text, sentence_list
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Bools, Counts, Floats
from ibpulse.core.events import PortHistory
from ibpulse.core.events.log import StateSpan
from ibpulse.core.ring.reader import RingReader, read_signals
from ibpulse.core.ring.spans import RingPort, read_rates
from ibpulse.core.statistics.gains import SignalReadings
from ibpulse.core.statistics.signs import (
    BLIND,
    ERRORS,
    FAR_FULL,
    FLAPS,
    LINK,
    LOSS,
    LOST,
    MAX_APART_NS,
    NAMES,
    NOTIFIED,
    PATH,
    PEAK,
    RECEIVER,
    REFUSED,
    RESENT_BYTES,
    SIGNS,
    SOURCE,
    TIMEOUTS,
    WAITED_SECONDS,
    WEAK,
    RailSamples,
    Signs,
    find_rail_signs,
    row_of,
)

TRANSMIT = 0
INFINIBAND = "InfiniBand"


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """The active threshold, and the bytes that a port sends per count of its waiting counter, None if unknown."""

    active_bytes_per_second: float
    tick_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PortSigns:
    """The signs of a port, and the readings that they come from."""

    name: str
    signs: Signs
    signals: SignalReadings
    infiniband: bool

    def remarks(self) -> list[str]:
        """Why its counters can leave most of its intervals unknown."""
        return find_remarks(self.signals, self.infiniband)


def read_limits(
    reader: RingReader,
    ports: Sequence[RingPort],
    history: PortHistory,
    ticks: range,
    options: LimitOptions,
    peaks: Mapping[str, float] | None = None,
) -> list[PortSigns]:
    """The signs of each port at consecutive ticks.

    The ports are rails, which are of one make: none is whole that is slower than the fastest. `peaks` are the usual
    peaks by port name, where they are known from more samples than these.
    """
    slots, strides = [port.slot for port in ports], [port.stride for port in ports]
    whole = max((_fastest(port, history, ticks.stop) for port in ports), default=0.0) or np.nan
    lines = [history.line_rate(str(port.port.id), port.port.rate_bytes_per_second) for port in ports]
    rates = read_rates(reader, slots, strides, ticks[0], ticks[-1], lines)
    start_ns = reader.wall_of(ticks[0])
    found = []
    for row, port in enumerate(ports):
        name, now = str(port.port.id), (port.port.rate_bytes_per_second, port.port.active)
        line, up = states_over(history.spans(name, ticks.start, ticks.stop), len(ticks), ticks.start, now)
        infiniband = port.port.identity.link_layer == INFINIBAND
        sent, seconds = rates.bytes_per_second[row, TRANSMIT], rates.seconds[row, TRANSMIT]
        samples = RailSamples(start_ns, reader.interval_ns, sent, seconds, line, up, infiniband, whole)
        at, signals = read_signals(reader, port.slot, ticks[0], ticks[-1])
        # the wall clock may have been set in between
        signals = replace(signals, wall_ns=start_ns + (at - ticks[0]) * reader.interval_ns)
        peak = None if peaks is None else peaks.get(name)
        signs = find_rail_signs(samples, signals, options.active_bytes_per_second, options.tick_bytes, peak)
        found.append(PortSigns(name, signs, signals, infiniband))
    return found


def _fastest(port: RingPort, history: PortHistory, end: int) -> float:
    """The highest line rate that is known of a port, 0 if none is."""
    known = [span.state.rate_bytes_per_second or 0.0 for span in history.spans(str(port.port.id), 0, end) if span.state]
    return max([port.port.rate_bytes_per_second or 0.0, *known])


def states_over(
    spans: Sequence[StateSpan], count: int, first: int = 0, otherwise: tuple[float | None, bool] = (None, False)
) -> tuple[Floats, Bools]:
    """The line rate, NaN if unknown, and whether the link is ACTIVE, at each of `count` samples from `first` on.

    Samples without a state are as `otherwise`.
    """
    line, up = np.full(count, otherwise[0] or np.nan), np.full(count, otherwise[1])
    for span in spans:
        at = slice(span.first - first, span.end - first)
        line[at] = (span.state and span.state.rate_bytes_per_second) or np.nan
        up[at] = span.state is not None and span.state.active
    return line, up


def describe_signs(ports: Sequence[PortSigns], units: float = 1, unit: str = "") -> list[Limit]:
    """The signs of ports together, as in `describe_limits`."""
    if not ports:
        return []
    tallies = np.stack([port.signs.tally() for port in ports])
    certain = all(port.signs.readings.tick_certain for port in ports)
    return describe_limits(tallies, [port.name for port in ports], units, unit, certain)


def group_limit_remarks(ports: Sequence[PortSigns]) -> list[str]:
    """The remarks of ports, each once with its ports."""
    return group_remarks((port.name, remark) for port in ports for remark in port.remarks())


MIN_SHARE = 0.005
MAX_NAMED = 4
SAME_SHARE = 0.5
"""A rail is named if it shows a sign at least half as often as the rail that shows it most."""


def find_remarks(signals: SignalReadings, infiniband: bool) -> list[str]:
    """Why the counters of a port can leave most of its intervals unknown; empty if they can tell."""
    apart_ns = float(np.median(np.diff(signals.wall_ns))) if len(signals.wall_ns) > 1 else 0.0
    if apart_ns > MAX_APART_NS:
        return [f"its counters are read only every {duration_text(round(apart_ns))}, so slow traffic is unknown"]
    rows = [row_of(signal.name, infiniband) for signal in signals.signals]
    telling = NOTIFIED if NOTIFIED in rows else WAITED_SECONDS
    if telling not in rows:
        return ["its driver counts neither waiting nor congestion notifications, so slow traffic is unknown"]
    column, full = rows.index(telling), signals.gains().full
    name = signals.signals[column].name
    if len(full) and full[-1, column]:
        return [f"its counter {name} is full, so slow traffic is unknown until the counters of the port are cleared"]
    if len(full) and not signals.counters[-1, column]:
        return [f"its counter {name} has never counted, and may never do so, so slow traffic is unknown"]
    return []


LEGEND = {
    ".": "does not transmit",
    "s": "source: below the usual peak, and neither waiting nor notifications explain it",
    "p": "path: it waits, or is notified of congestion",
    "r": "receiver: the other end refuses requests",
    "l": "loss: packets are sent again",
    "k": "link: it went down, has errors, or trained down",
    "-": "unknown: a counter moved, but too little",
    "=": "unknown: at its usual peak, nothing holds it back",
    "?": "unknown: no counter could tell",
}
"""What the letters of a strip mean, in the order of the codes."""
CANNOT_KNOW = (
    "Signs are no causes: a port does not see switches, other tenants, or what the other end does with the data."
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A sign with the share of the communication that shows it, 0 to 1, its seconds and a sentence with evidence."""

    sign: str
    share: float
    seconds: float
    text: str


def describe_limits(
    tallies: Floats, names: Sequence[str], units: float = 1, unit: str = "", tick_certain: bool = False
) -> list[Limit]:
    """The signs of rails by their tallies (rails, CODES, 1 + GAINS), the most frequent first; unknown is the last.

    `units` is the number of bursts, steps or seconds that the tallies are of, `unit` its word in the sentences.
    """
    busy = float(tallies[..., 0].sum())
    if busy <= 0:
        return []
    found = []
    for code in (SOURCE, PATH, RECEIVER, LOSS, LINK):
        seconds = float(tallies[:, code, 0].sum())
        if seconds < MIN_SHARE * busy:
            continue
        rails = _rails_with(tallies[:, :, 0], code)
        evidence = _evidence(code, tallies[rails, code].sum(axis=0), units * len(rails), tick_certain)
        text = (
            f"{_percent(seconds / busy)} of the communication{unit and f' of a {unit}'} shows signs of {WORDS[code]}"
            f"{_rails_text([names[rail] for rail in rails], len(names))}: {evidence}"
        )
        found.append(Limit(NAMES[code], seconds / busy, seconds, text))
    found.sort(key=lambda limit: -limit.share)
    parts = {code: float(tallies[:, code, 0].sum()) for code in (PEAK, WEAK, BLIND)}
    unknown = sum(parts.values())
    if unknown >= MIN_SHARE * busy:
        reasons = [f"{_percent(part / busy)} {WORDS[code]}" for code, part in parts.items() if part >= MIN_SHARE * busy]
        text = f"{_percent(unknown / busy)} is unknown{': ' * bool(reasons)}{sentence_list(reasons)}"
        found.append(Limit(SIGNS[-1], unknown / busy, unknown, text))
    return found


WORDS = {
    SOURCE: "the source",
    PATH: "the path",
    RECEIVER: "the receiver",
    LOSS: "loss",
    LINK: "the link",
    PEAK: "at the usual peak",
    WEAK: "with signs that are too weak",
    BLIND: "without a counter that could tell",
}


def _rails_with(seconds: Floats, code: int) -> Counts:
    """The rails that show a sign often, by their seconds (rails, CODES)."""
    busy = seconds.sum(axis=1)
    share = np.divide(seconds[:, code], busy, out=np.zeros(len(busy)), where=busy > 0)
    return np.flatnonzero((share > 0) & (share >= SAME_SHARE * share.max()))


def _rails_text(names: list[str], every: int) -> str:
    if len(names) == every:
        return f" on all {every} rails" if every > 1 else ""
    return f" on {sentence_list(names) if len(names) <= MAX_NAMED else names_text(names, MAX_NAMED)}"


def _evidence(code: int, tally: Floats, units: float, tick_certain: bool) -> str:
    """What the counters of the rails gained in a sign's seconds, of a tally (1 + GAINS,) of so many units."""
    seconds, gained = float(tally[0]), tally[1:]

    def often(row: int, what: str) -> str:
        return f"{float(f'{gained[row] / seconds:.3g}'):,.10g} {what} a second" if gained[row] else ""

    def times(row: int, one: str, many: str) -> str:
        return f"{gained[row]:,.0f} {one if gained[row] == 1 else many}" if gained[row] else ""

    if code == SOURCE:
        return "below the usual peak, and neither waiting nor notifications explain it"
    parts: dict[int, list[str]] = {PATH: [], RECEIVER: [], LOSS: [], LINK: []}
    if gained[WAITED_SECONDS]:
        waited, whole = (duration_text(round(each / units * SECOND_NS)) for each in (gained[WAITED_SECONDS], seconds))
        parts[PATH].append(f"waiting {'' if tick_certain else 'about '}{waited} of {whole}")
    parts[PATH].append(often(NOTIFIED, "notifications"))
    parts[RECEIVER] += [often(REFUSED, "refusals"), often(FAR_FULL, "reports of the other end")]
    parts[LOSS] += [times(TIMEOUTS, "timeout", "timeouts"), often(LOST, "losses")]
    if gained[RESENT_BYTES]:
        parts[LOSS].append(f"{rate_text(gained[RESENT_BYTES] / seconds)} sent again")
    parts[LINK] += [times(FLAPS, "interruption", "interruptions"), often(ERRORS, "errors")]
    return ", ".join(filter(None, parts[code])) or "at what the link is trained down to"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
