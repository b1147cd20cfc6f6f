"""The checks that look at more than one setting. They must not know where a value came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ibpulse.config.settings import Settings
from ibpulse.units import format_duration


@dataclass(frozen=True, slots=True)
class Rule:
    """A check of several settings; `find` gives each fault's sentence, which stands at the first of the names."""

    names: tuple[str, ...]
    find: Callable[[Settings], Iterator[str]]


def fit_timescales(settings: Settings) -> tuple[int, ...]:
    """The time scales that are multiples of the interval; never none if one second is among them."""
    return tuple(scale for scale in settings.analysis.timescales if scale % settings.sampler.interval == 0)


def _history_covers_windows(settings: Settings) -> Iterator[str]:
    history, longest = settings.sampler.history, max(settings.analysis.windows)
    if history < longest:
        yield (
            f"{format_duration(history)} is shorter than the longest of analysis.windows; "
            f"raise sampler.history to {format_duration(longest)} or leave that window out"
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
    Rule(("analysis.timescales", "sampler.interval"), _timescales_fit_interval),
)
