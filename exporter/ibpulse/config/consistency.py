"""Checks across settings, and the defaults that adapt to other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ibpulse.config.settings import Settings
from ibpulse.units import SECOND_NS, format_duration


@dataclass(frozen=True, slots=True)
class Rule:
    """A check of several settings; `find` gives each fault's sentence, which stands at the first of the names."""

    names: tuple[str, ...]
    find: Callable[[Settings], Iterator[str]]


def fit_timescales(settings: Settings) -> tuple[int, ...]:
    """The time scales that are multiples of the interval; never none if one second is among them."""
    return tuple(scale for scale in settings.analysis.timescales if scale % settings.sampler.interval == 0)


def fit_traffic_window(settings: Settings) -> int:
    """The traffic window, or all whole seconds of the history if that is shorter."""
    return min(settings.analysis.traffic_window, settings.sampler.history // SECOND_NS * SECOND_NS)


def fit_capture_after(settings: Settings) -> int:
    """The time after a trigger, or a quarter of the history if that is shorter."""
    return min(settings.capture.after, settings.sampler.history // 4)


def fit_capture_before(settings: Settings) -> int:
    """The time before a trigger, or what the history has beside the time after it; at least a second."""
    return min(settings.capture.before, max(SECOND_NS, settings.sampler.history - settings.capture.after))


def _history_covers_captures(settings: Settings) -> Iterator[str]:
    history, wanted = settings.sampler.history, settings.capture.before + settings.capture.after
    if history < wanted:
        yield (
            f"{format_duration(settings.capture.before)} with capture.after, "
            f"{format_duration(settings.capture.after)}, is more than sampler.history, {format_duration(history)}; "
            f"raise sampler.history to {format_duration(wanted)} or shorten the capture"
        )


def _history_covers_windows(settings: Settings) -> Iterator[str]:
    history, longest = settings.sampler.history, max(settings.analysis.windows)
    if history < longest:
        yield (
            f"{format_duration(history)} is shorter than the longest of analysis.windows; "
            f"raise sampler.history to {format_duration(longest)} or leave that window out"
        )


def _history_covers_traffic(settings: Settings) -> Iterator[str]:
    history, window = settings.sampler.history, settings.analysis.traffic_window
    if history < window:
        yield (
            f"{format_duration(history)} is shorter than analysis.traffic-window; "
            f"raise sampler.history to {format_duration(window)} or shorten that window"
        )


def _timescales_fit_interval(settings: Settings) -> Iterator[str]:
    fitting = fit_timescales(settings)
    for scale in settings.analysis.timescales:
        if scale not in fitting:
            yield (
                f"{format_duration(scale)} is no multiple of sampler.interval, "
                f"{format_duration(settings.sampler.interval)}; leave it out or change the interval"
            )


RULES = (
    Rule(("sampler.history", "analysis.windows"), _history_covers_windows),
    Rule(("sampler.history", "analysis.traffic-window"), _history_covers_traffic),
    Rule(("capture.before", "capture.after", "sampler.history"), _history_covers_captures),
    Rule(("analysis.timescales", "sampler.interval"), _timescales_fit_interval),
)

FITTED: dict[str, Callable[[Settings], object]] = {
    "analysis.timescales": fit_timescales,
    "analysis.traffic-window": fit_traffic_window,
    "capture.after": fit_capture_after,
    "capture.before": fit_capture_before,
}
"""The defaults that are cut to other settings, in this order."""
