"""What people read is plain English: no retired phrase anywhere, few words that betray a translated sentence.

A telltale word is not a fault by itself. Their number per thousand words tells whether sentences are written the way
an engineer would say them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ibpulse.commands import VERBS, overview
from ibpulse.commands.parser import build_parser

ROOT = Path(__file__).resolve().parents[2]
ENDINGS = (".md", ".py", ".js", ".html", ".yaml", ".yml", ".j2", ".tpl", ".txt", ".toml", ".css")
# tests name what they check, and the numbers of these pages are measured
NOT_COUNTED = (
    "tests/",
    "CHANGELOG.md",
    "docs/accuracy",
    "docs/traffic-accuracy",
    "docs/gateway-accuracy",
    "docs/benchmarks",
    "requirements/",
)
# copies of files that are checked where they are written
NOT_READ = (
    "helm/ibpulse/files/",
    "tests/campaigns/chart/values-0.1.yaml",
    "tests/upgrade/released/",
    "tests/docs/test_language.py",
    "LICENSE",
)

RETIRED = {
    "and no more are at once": "which is the maximum",
    "and no more do at once": "which is the maximum",
    "and no more may": "which is the maximum",
    "of which no file is ever opened": "never to open",
    "go before it": "override it",
    "goes before": "takes precedence over",
    "told apart by": "chosen by, distinguished by",
    "told by their size": "guessed from their magnitude",
    "if another than the one": "if different from the one",
    "those that are no multiple are left out": "those that are not a multiple are dropped",
    "time between two looks": "how often … is re-read",
    "gave no sign of life": "no heartbeat",
    "it is started again": "restarting it",
    "does not begin as a ring does": "is not a ring file",
    "for a user that there is not": "for unknown users",
    "is not there once but": "must appear exactly once, found",
    "nothing else suffers": "sampling and metrics are not affected",
    "a page of another site may not write": "cross-site write refused",
    "there is nothing at": "no such path",
    "lists what there is": "lists the endpoints",
    "puts what they say into": "exports the results to",
    "both set up all that they need": "both create their own virtual environment",
    "beyond the noise": "statistically significant",
    "is it sampling; are samples in": "liveness and readiness",
    "beside a c program": "compared with a C program",
    "beside the truth": "measured accuracy",
    "why it is built so": "design decisions",
    "the sick one is tried alone": "the hung device is retried in isolation",
    "a reason to wake somebody": "something to page on",
    "whether this node's numbers can be trusted, and what to do": "… and how to fix problems",
    "needs no daemon and disturbs none": "works with or without a running daemon",
    "leave out what is before": "start at",
    "a time of the clock": "a wall-clock time",
    "look at files only; take no samples": "static checks only, no sampling",
    "end with exit code 1 for a warning too": "exit 1 on warnings as well",
    "all that is chosen stands behind": "the whole view state is kept in",
    "stops to answer": "stops answering",
    "leaves them away": "turns them off",
    "and come again": "reconnect",
    "a file that is there is not replaced": "existing files are not overwritten",
    "rails that are not well": "unhealthy rails",
    "mend it": "fix it",
    "counted on over": "continues across",
    "the rest is told": "the rest get",
    "no longer there:": "disappeared",
    "sampled from now on": "now sampling, came back",
    "ticks kept": "samples captured",
    "nothing was measured": "no data, missing data",
}
"""Phrases of version 0.1 that are gone, with what to say."""

TELLTALES = {
    "beside": "next to, compared with",
    "told|tells?": "says, shows, distinguishes",
    "anew": "again",
    "of which": "whose",
    "go(?:es)? before": "takes precedence over",
    "nobody|somebody": "name the thing",
    "stands?": "is, appears",
    "what (?:is|was|it|there|they|must|can|cannot|happens)": "name the thing",
    "so (?:many|much|long|that|it)": "be exact",
    "unless (?:given|said)|if not said": "by default",
    "left (?:alone|out|away)": "ignored, excluded",
    "is none|no more (?:may|are|do)": "is not one, is the maximum",
    "must not": "a limit only where it surprises",
    "at once": "in parallel, immediately",
    "how (?:late|it is|long|often|near) ": "latency, duration, rate",
    "mend(?:ed)?": "fix",
    "holes?": "missing data",
    "ticks?": "sample; ticks belong to the scheduler",
    "looks? (?:at|for|whether)|a look": "checks, polls, searches",
    "there is no": "no such …",
}
TELLTALE = re.compile(r"\b(?:" + "|".join(TELLTALES) + r")\b")


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    return tuple(name for name in listed if name.endswith(ENDINGS) and not name.startswith(NOT_READ))


def texts(name: str) -> Iterator[tuple[int, str]]:
    """Line and text of everything in a file that a person reads: comments and strings of Python, prose of others."""
    source = (ROOT / name).read_text(encoding="utf-8")
    if not name.endswith(".py"):
        fenced = False
        for number, line in enumerate(source.splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced:
                yield number, line
        return
    for token in tokenize.generate_tokens(iter(source.splitlines(keepends=True)).__next__):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def per_thousand(written: Iterator[str]) -> float:
    words = found = 0
    for text in written:
        words += len(text.split())
        found += len(TELLTALE.findall(text.lower()))
    return 1000 * found / max(words, 1)


def helps() -> Iterator[str]:
    yield overview()
    for verb in VERBS.values():
        yield build_parser(verb, show_settings=True).format_help()


def test_no_retired_phrase_is_anywhere() -> None:
    found = [
        f"{name}:{line}: {phrase!r}: say {instead!r}"
        for name in tracked()
        for line, text in texts(name)
        for spoken in [" ".join(text.lower().split())]
        for phrase, instead in RETIRED.items()
        if phrase in spoken
    ]
    assert not found, "\n".join(found)


def test_documents_and_help_have_few_telltales() -> None:
    pages = [name for name in tracked() if name.startswith(("README", "docs/")) and not name.startswith(NOT_COUNTED)]
    assert per_thousand(text for name in pages for _, text in texts(name)) <= 3
    assert per_thousand(helps()) <= 3


def test_all_that_people_read_has_few_telltales() -> None:
    names = [name for name in tracked() if not name.startswith(NOT_COUNTED)]
    assert per_thousand(text for name in names for _, text in texts(name)) <= 5


@pytest.mark.parametrize(
    ("text", "expected"), [("the port is sampled again", 0), ("a port of which nobody knows what it is", 3)]
)
def test_telltales_are_found(text: str, expected: int) -> None:
    assert len(TELLTALE.findall(text)) == expected
