"""The pages of the workbench: rules of `ibpulse model check`, inputs of `ibpulse model`, rows of `ibpulse report`."""

from __future__ import annotations

from ibpulse.workbench.models.check import DATA, DATE, EFFECTS, RULES, Rule
from ibpulse.workbench.models.inputs import KEYS
from ibpulse.workbench.reports.rows import rows

_BIN_NS = 10_000_000
_INPUTS = """\
# Inputs of ibpulse model

Keys of a YAML file for [`ibpulse model`](models.md#inputs), with defaults in brackets. Those that
[cli.md](cli.md#ibpulse-model) lists are also flags."""
_ROWS = """\
# Rows of a report

The rows of [`ibpulse report`](report.md). *Active* means above `--analysis.active-threshold`, 0.1 GB/s. An x under
*per sample* marks rows that are omitted for cached counters, which stay constant over several samples. An x under *±*
marks rows with a confidence interval. Burstiness has one row per timescale; bins with missing data are excluded."""

_INTRODUCTION = """\
# Rules about overlap

`ibpulse model check` ([overlap.md](overlap.md#check-a-configuration)) applies these {count} rules of {date} to the
options of a run: {options}. Where the first condition holds, the second is needed. Rules change: other versions may
have others."""


def overlap_rules_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    options = ", ".join(f"`{name}`" for group in DATA["options"].values() for name in group)
    urls = [source["url"] for source in DATA["sources"].values()]
    rows = [_row(rule, [urls.index(url) + 1 for url in rule.sources]) for rule in RULES]
    effects = [f"| {effect} | {text} |" for effect, text in EFFECTS.items()]
    sources = [f"{number}. <{url}>" for number, url in enumerate(urls, 1)]
    return (
        "\n\n".join(
            [
                written_by,
                _INTRODUCTION.format(count=len(RULES), date=DATE, options=options),
                "\n".join(["| rule | where | needs | effect | change | source |", "|---|---|---|---|---|---|", *rows]),
                "\n".join(["| effect | what a violation causes |", "|---|---|", *effects]),
                "Sources:\n\n" + "\n".join(sources),
            ]
        )
        + "\n"
    )


def _row(rule: Rule, sources: list[int]) -> str:
    numbers = ", ".join(map(str, sources))
    return f"| {rule.id} | `{rule.where}` | `{rule.needs}` | {rule.effect} | {rule.change} | {numbers} |"


def model_inputs_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    lines = [f"- `{key.name}`{f' ({key.default})' * bool(key.default)}: {key.sentence}" for key in KEYS.values()]
    return "\n\n".join([written_by, _INPUTS, "\n".join(lines)]) + "\n"


def report_rows_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    lines = ["| row | key | definition | per sample | ± |", "|---|---|---|---|---|"]
    for row in rows((_BIN_NS,)):
        sampled, scattered = "x" * row.finest, "x" * bool(row.of_units or row.of_steps)
        lines.append(f"| {row.label} | `{row.key}` | {row.definition} | {sampled} | {scattered} |")
    return "\n\n".join([written_by, _ROWS, "\n".join(lines)]) + "\n"
