"""Faults that the unit tests must find, each with what a user would see of it."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A change of one file: `old`, which occurs exactly once, becomes `new`; one of the `tests` must fail then."""

    name: str
    file: str
    old: str
    new: str
    seen: str
    tests: tuple[str, ...]


SAMPLER, RING = "exporter/ibpulse/sampler/", "exporter/ibpulse/ring/"
ANALYSIS, FLEET = "exporter/ibpulse/analysis/", "exporter/ibpulse/fleet/"

PLANTED = (
    Fault(
        "steady-lateness",
        SAMPLER + "steady.py",
        "late_ns.append(late if late > 0 else 0)",
        "late_ns.append(0)",
        "the wake-up delay is 0 on a machine that samples late",
        ("tests/sampler/test_steady_times.py",),
    ),
    Fault(
        "steady-doubt",
        SAMPLER + "steady.py",
        "if after - before > longest:",
        "if False:",
        "constant traffic has peaks on a device whose reads are slow",
        ("tests/sampler/test_steady_times.py",),
    ),
    Fault(
        "quarantine-steady-since",
        SAMPLER + "quarantine.py",
        "        held.steady_since = None\n        return False",
        "        return False",
        "a device that hangs again during its trial is released at once and stops all others",
        ("tests/sampler/test_quarantine.py",),
    ),
    Fault(
        "ring-words-before-mark",
        RING + "reader.py",
        """            copies[:, :, at.R_TICK] = records[:, :, at.R_TICK]
            copies[:, :, : at.R_TICK] = records[:, :, : at.R_TICK]
""",
        """            copies[:, :, : at.R_TICK] = records[:, :, : at.R_TICK]
            copies[:, :, at.R_TICK] = records[:, :, at.R_TICK]
""",
        "a sample has the counters of another one, a whole ring earlier: a false reset or peak",
        ("tests/ring/test_reader_order.py",),
    ),
    Fault(
        "lateness-floor",
        FLEET + "lateness.py",
        'series.width("transmit", "end_before"), COINCIDE_MS)',
        'series.width("transmit", "end_before"), 0.0)',
        "the lateness of a node is stated more exactly than the ends of a collective coincide",
        ("tests/fleet/test_lateness.py",),
    ),
    Fault(
        "merge-count-at-first-read",
        ANALYSIS + "plausible.py",
        ".astype(np.float64) - 1\n    widths",
        ".astype(np.float64)\n    widths",
        "at the line rate, a counter with a large scale has samples named implausible",
        ("tests/analysis/test_plausible_bounds.py",),
    ),
)
