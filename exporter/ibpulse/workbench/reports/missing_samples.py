"""Sentences on the missing samples of a report, and on the rows that are not shown because of them."""

from __future__ import annotations

from collections.abc import Iterator

from ibpulse.base.text import escape_controls
from ibpulse.workbench.reports.comparison import Report
from ibpulse.workbench.reports.run import Run

TOO_MUCH = "bursts, gaps, steps, peaks and the signature would be those of other traffic and are not shown"
LITTLE = "numbers of bursts, gaps and steps are lower bounds, and rows that need every sample are not shown"


def missing_text(report: Report) -> str:
    """One sentence on the recordings that miss many samples, and one on those that miss few; empty without any."""
    runs = [(name, run) for name, run in zip(report.names, report.runs, strict=True) if run.missing_ratio > 0]
    sentences = []
    for consequence, too_much in ((TOO_MUCH, True), (LITTLE, False)):
        shares = [
            f"{max(100 * run.missing_ratio, 0.01):.3g} % of {escape_controls(name)}"
            for name, run in runs
            if run.too_much_missing == too_much
        ]
        if shares:
            listed = " and ".join(filter(None, (", ".join(shares[:-1]), shares[-1])))
            sentences.append(f"{listed} {'is' if len(shares) == 1 else 'are'} missing: {consequence}.")
    return " ".join(sentences)


def cut_off_remarks(run: Run) -> Iterator[str]:
    """Why a quantile of the lengths of bursts or gaps is unknown although there are some."""
    for what in ("burst", "gap"):
        unknown = [
            words for key, words in (("p50", "median"), ("p95", "p95")) if not run.values[f"{what}_seconds_{key}"]
        ]
        if run.values[f"{what}s"] and unknown:
            yield (
                f"{what} length, {' and '.join(unknown)}: unknown, because too many {what}s are cut off by missing "
                "data or by an end of the window."
            )
