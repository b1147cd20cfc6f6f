"""Checks across settings, and defaults that adapt to other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ibpulse.agent.config.settings import Settings
from ibpulse.base.units import SECOND_NS, format_duration


@dataclass(frozen=True, slots=True)
class Rule:
    """A check of several settings; `find` yields the errors, which are reported for the first of the names."""

    names: tuple[str, ...]
    find: Callable[[Settings], Iterator[str]]


def fit_traffic_window(settings: Settings) -> int:
    """The traffic window, limited to the history, in whole seconds."""
    return min(settings.analysis.traffic_window, settings.sampler.history // SECOND_NS * SECOND_NS)


def fit_capture_after(settings: Settings) -> int:
    """The time after a trigger, limited to a quarter of the history."""
    return min(settings.capture.after, settings.sampler.history // 4)


def fit_capture_before(settings: Settings) -> int:
    """The time before a trigger, limited to the rest of the history; at least one second."""
    return min(settings.capture.before, max(SECOND_NS, settings.sampler.history - settings.capture.after))


def _history_covers_captures(settings: Settings) -> Iterator[str]:
    history, wanted = settings.sampler.history, settings.capture.before + settings.capture.after
    if history < wanted:
        yield (
            f"{format_duration(settings.capture.before)} with capture.after, "
            f"{format_duration(settings.capture.after)}, exceeds sampler.history, {format_duration(history)}; "
            f"raise sampler.history to {format_duration(wanted)} or shorten the capture"
        )


def _history_covers_traffic(settings: Settings) -> Iterator[str]:
    history, window = settings.sampler.history, settings.analysis.traffic_window
    if history < window:
        yield (
            f"{format_duration(history)} is shorter than analysis.traffic-window; "
            f"raise sampler.history to {format_duration(window)} or shorten that window"
        )


RULES = (
    Rule(("sampler.history", "analysis.traffic-window"), _history_covers_traffic),
    Rule(("capture.before", "capture.after", "sampler.history"), _history_covers_captures),
)

FITTED: dict[str, Callable[[Settings], object]] = {
    "analysis.traffic-window": fit_traffic_window,
    "capture.after": fit_capture_after,
    "capture.before": fit_capture_before,
}
"""Defaults limited by other settings, applied in this order."""
