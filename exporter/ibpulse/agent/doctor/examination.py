"""Runs all checks in order over the facts, and renders the findings as a page or a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace

from ibpulse.agent.doctor import gpudirect, machine, ports, sample_checks, tree
from ibpulse.agent.doctor.facts import Check, Facts, Finding, Level, checks_of, worst_level
from ibpulse.base.document import hang
from ibpulse.base.text import count_text, escape_controls, names_text

NOT_JUDGED = "Not judged: the tree is not a kernel's sysfs, so this machine is not the node."
CHECKS: tuple[Check, ...] = tuple(
    one for module in (tree, ports, gpudirect, sample_checks, machine) for one in checks_of(module)
)

WIDTH = 118
COLOURS = {Level.SKIP: "2", Level.OK: "32", Level.WARN: "33", Level.FAIL: "31"}
DOCUMENT_VERSION = 1
_WORDS = {Level.OK: "OK: nothing to do", Level.WARN: "WARN", Level.FAIL: "FAIL"}


def examine(facts: Facts, names: Collection[str] = ()) -> tuple[Finding, ...]:
    """Findings of the named checks, or of all checks if `names` is empty, in the order of `CHECKS`."""
    chosen = [check for check in CHECKS if not names or check.name in names]
    return tuple(_file(finding, check, facts) for check in chosen for finding in check.find(facts))


def _file(finding: Finding, check: Check, facts: Facts) -> Finding:
    """The finding with the name of its check as topic; not judged if it is about a machine that is not the node."""
    if check.of_machine and not facts.tree.is_kernel and finding.level is not Level.OK:
        finding = replace(finding, level=Level.SKIP, meaning=NOT_JUDGED, advice="")
    return replace(finding, topic=check.name)


def page(findings: Sequence[Finding], title: str = "", *, colour: bool = False) -> str:
    """The findings as text, one line each, with meaning and advice if not OK, and the verdict at the end.

    Findings that differ only in their subject share one line.
    """
    lines = [escape_controls(title), ""] if title else []
    rows = [row for finding, subjects in merge(findings) for row in _rows(finding, subjects)]
    for row, text in zip(rows, hang(rows, WIDTH), strict=True):
        word = row[0].strip()
        lines.append(text.replace(word, f"\033[{COLOURS[Level[word]]}m{word}\033[0m", 1) if colour and word else text)
    lines += ["", verdict(findings)]
    return "\n".join(lines) + "\n"


def merge(findings: Sequence[Finding]) -> list[tuple[Finding, tuple[str, ...]]]:
    """Findings without their subject, in order of first appearance, each with all its subjects."""
    found: dict[Finding, list[str]] = {}
    for finding in findings:
        found.setdefault(replace(finding, subject=""), []).append(finding.subject)
    return [(finding, tuple(filter(None, subjects))) for finding, subjects in found.items()]


def verdict(findings: Sequence[Finding]) -> str:
    """The last line of the page: the worst level, and the number of failures and warnings."""
    counts = Counter(finding.level for finding in findings)
    worst = worst_level(findings)
    if worst is Level.OK:
        return f"verdict: {_WORDS[worst]}"
    told = [count_text(counts[level], word) for level, word in ((Level.FAIL, "failure"), (Level.WARN, "warning"))]
    return f"verdict: {_WORDS[worst]} ({', '.join(text for text in told if not text.startswith('0 '))})"


def document(findings: Sequence[Finding], about: Mapping[str, object]) -> dict[str, object]:
    """The findings as JSON values: `version`, `verdict`, the items of `about`, and `findings`."""
    return {
        "version": DOCUMENT_VERSION,
        "verdict": worst_level(findings).name,
        **about,
        "findings": [asdict(finding) | {"level": finding.level.name} for finding in findings],
    }


def _rows(finding: Finding, subjects: Sequence[str]) -> list[tuple[str, ...]]:
    """Level, topic and sentence of a finding, then its meaning and advice; a sentence is the last cell of its row."""
    # sentences are about one subject
    each = "each " if len(subjects) > 1 and finding.sentence[:1].islower() else ""
    text = f"{names_text(subjects)}: {each}{finding.sentence}" if subjects else finding.sentence
    more = (("means", finding.meaning), ("do", finding.advice))
    # columns of one width, so that the page of a watch stays where it is
    level, topic = f"{finding.level.name:4}", f"{finding.topic:10}"
    shown = [("", "", f"{label:5}", told) for label, told in more if told]
    return [(level, topic, text), *shown]
