"""The signs of limits of ports as sentences, and what they cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ibpulse.base.text import duration_text, names_text, rate_text, sentence_list
from ibpulse.base.units import SECOND_NS
from ibpulse.core.arrays import Counts, Floats
from ibpulse.core.statistics.gains import SignalReadings
from ibpulse.core.statistics.limits import row_of
from ibpulse.core.statistics.signs import (
    BLIND,
    ERRORS,
    FAR_FULL,
    FLAPS,
    LINK,
    LOSS,
    LOST,
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
)

TRANSMIT = 0
INFINIBAND = "InfiniBand"


MIN_SHARE = 0.005
MAX_NAMED = 4
SAME_SHARE = 0.5
"""A rail is named if it shows a sign at least half as often as the rail that shows it most."""


def find_remarks(signals: SignalReadings, infiniband: bool) -> list[str]:
    """Why the counters of a port can leave most of its intervals unknown; empty if they can tell."""
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
    "s": "source: slower than usual, and neither waiting nor notifications explain it",
    "p": "path: it waits, or is notified of congestion",
    "r": "receiver: the other end refuses requests",
    "l": "loss: packets are sent again",
    "k": "link: it went down, has errors, or trained down",
    "=": "unknown: at its usual peak, nothing holds it back",
    "-": "unknown: a counter moved, but too little",
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
        text = f"{_percent(unknown / busy)} is unknown: {sentence_list(reasons)}"
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
        return f"{gained[row] / seconds:,.3g} {what} a second" if gained[row] else ""

    def times(row: int, one: str, many: str) -> str:
        return f"{gained[row]:,.0f} {one if gained[row] == 1 else many}" if gained[row] else ""

    if code == SOURCE:
        return "slower than usual, and neither waiting nor notifications explain it"
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
