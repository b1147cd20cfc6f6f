"""What samples of a given length show of a load whose rate is known: mean, peak, duty cycle and CV.

A sample is the mean rate over its length D; its phase is random. `on_off_statistics` is the closed form for a load
that is on for a share d of every period T. `schedule_statistics` is exact for any piecewise constant rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Statistics of samples of one length; rates in bytes per second, `cv` over the active samples."""

    mean: float
    peak: float
    duty: float
    cv: float
    cv_all: float


def on_off_statistics(period: float, on_share: float, rate: float, sample: float) -> SampleStatistics:
    """The closed form of a periodic load; `period` and `sample` in the same unit.

    CV_all^2 = (1/d^2) sum over k of 2 (sin(pi k d)/(pi k))^2 sinc(k D/T)^2, duty = min(1, d + D/T),
    CV^2 = (CV_all^2 + 1) duty - 1; the peak is the rate, or rate d T/D for bursts that are shorter than a sample. The
    products of sines are differences of cosines, and the sum of cos(2 pi k x)/k^4 is a polynomial in x.

    Raises:
        ValueError: a share outside 0 to 1, or a period or sample that is not positive.
    """
    if not (0 < on_share <= 1 and period > 0 and sample > 0):
        raise ValueError("give a share above 0 and up to 1, and a period and a sample above 0")
    ratio = sample / period
    products = _cosines(0.0) - _cosines(on_share) - _cosines(ratio)
    products += (_cosines(on_share - ratio) + _cosines(on_share + ratio)) / 2
    variance = max(0.0, products / (2 * math.pi**4 * (on_share * ratio) ** 2))
    # bursts of several periods that fit into one sample add up in the peak
    duty = min(1.0, on_share + ratio)
    return SampleStatistics(
        mean=on_share * rate,
        peak=rate * _longest_on(ratio, on_share) / ratio,
        duty=duty,
        cv=math.sqrt(max(0.0, (variance + 1) * duty - 1)),
        cv_all=math.sqrt(variance),
    )


def _cosines(x: float) -> float:
    """The sum of cos(2 pi k x) / k^4 over all k >= 1: -(2 pi)^4/48 times the Bernoulli polynomial B4 of x."""
    x %= 1.0
    return -((2 * math.pi) ** 4) / 48 * (x**4 - 2 * x**3 + x**2 - 1 / 30)


def _longest_on(ratio: float, on_share: float) -> float:
    """The most on-time within a sample, in periods: whole periods, and the best part of the next."""
    whole = math.floor(ratio)
    return whole * on_share + min(ratio - whole, on_share)


Span = tuple[float, float, float]
"""Begin, end and rate of a part of a step; parts do not overlap."""


def schedule_statistics(spans: Sequence[Span], period: float, sample: float) -> SampleStatistics:
    """Exact statistics over all phases of a load that repeats every `period`; times in seconds.

    The value of a sample is linear in its phase between the edges of the rate and those edges minus the sample's
    length, so mean squares and shares follow from the values at these phases.

    Raises:
        ValueError: the load has no traffic.
    """
    amount = _Amount(spans, period)
    mean = amount.total / period
    if not mean:
        raise ValueError("a load without traffic has no statistics")
    edges = {time % period for begin, end, _ in spans for time in (begin, end, begin - sample, end - sample)}
    phases = sorted(edges | {0.0})
    values = [(amount.until(phase + sample) - amount.until(phase)) / sample for phase in phases]
    least = mean * 1e-9
    square = active = 0.0
    for at, begin in enumerate(phases):
        last = at + 1 == len(phases)
        width = (period if last else phases[at + 1]) - begin
        first, second = values[at], values[0 if last else at + 1]
        square += width * (first * first + first * second + second * second) / 3
        active += width if max(first, second) > least else 0.0
    duty = active / period
    ratio = square / period / mean**2
    return SampleStatistics(
        mean=mean,
        peak=max(values),
        duty=duty,
        cv=math.sqrt(max(0.0, ratio * duty - 1)),
        cv_all=math.sqrt(max(0.0, ratio - 1)),
    )


class _Amount:
    """Bytes sent since the step began, at any time, also in later steps."""

    def __init__(self, spans: Sequence[Span], period: float) -> None:
        self.spans, self.period = sorted(spans), period
        self.begins = [begin for begin, _, _ in self.spans]
        self.before = [0.0]
        for begin, end, rate in self.spans:
            self.before.append(self.before[-1] + (end - begin) * rate)
        self.total = self.before[-1]

    def until(self, time: float) -> float:
        from bisect import bisect_right

        whole, rest = divmod(time, self.period)
        at = bisect_right(self.begins, rest) - 1
        if at < 0:
            return whole * self.total
        begin, end, rate = self.spans[at]
        return whole * self.total + self.before[at] + (min(rest, end) - begin) * rate
