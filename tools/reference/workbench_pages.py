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

The rows of [`ibpulse report`](report.md). *Active* means above `--analysis.active-threshold`, 0.1 GB/s. Rows *per
sample* are omitted for cached counters, which stay constant over several samples; those with *±* have a confidence
interval. Burstiness has one row per timescale; bins with missing data are excluded."""

_INTRODUCTION = """\
# Rules about overlap

`ibpulse model check` ([overlap.md](overlap.md#check-a-configuration)) applies these {count} rules of {date} to the
options of a run. Other versions may have others. Below are the effects, then each rule with its effect, its sources,
and what to change."""


def overlap_rules_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    urls = [source["url"] for source in DATA["sources"].values()]
    rows = [_row(rule, [urls.index(url) + 1 for url in rule.sources]) for rule in RULES]
    effects = [f"- *{effect}*: {text}" for effect, text in EFFECTS.items()]
    sources = [f"{number}. <{url}>" for number, url in enumerate(urls, 1)]
    return (
        "\n\n".join(
            [
                written_by,
                _INTRODUCTION.format(count=len(RULES), date=DATE),
                "\n".join(effects),
                "\n".join(rows),
                "Sources:\n\n" + "\n".join(sources),
            ]
        )
        + "\n"
    )


def _row(rule: Rule, sources: list[int]) -> str:
    numbers = ", ".join(map(str, sources))
    return f"- {rule.id} (*{rule.effect}*; {numbers}): `{rule.where}` needs `{rule.needs}`; {rule.change}"


def model_inputs_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    lines = [f"- `{key.name}`{f' ({key.default})' * bool(key.default)}: {key.sentence}" for key in KEYS.values()]
    return "\n\n".join([written_by, _INPUTS, "\n".join(lines)]) + "\n"


def report_rows_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    lines = []
    for row in rows((_BIN_NS,)):
        marks = ["per sample"] * row.finest + ["±"] * bool(row.of_units or row.of_steps)
        lines.append(f"- {row.label}, `{row.key}`{_in_brackets(marks)}: {row.definition}")
    return "\n\n".join([written_by, _ROWS, "\n".join(lines)]) + "\n"


def _in_brackets(words: list[str]) -> str:
    return f" ({', '.join(words)})" if words else ""
