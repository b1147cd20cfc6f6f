"""The three formats of the log: the same record, and what a parser of each format gets back."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from ibpulse.commands.logs import FORMATTERS

MESSAGES = ["sampling 8 ports", "", 'capture "a=b" written', "two\nlines", "plain", "µs \\ backslash"]
PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^" =\\]+)(?: |$)')


def make_record(message: str) -> logging.LogRecord:
    record = logging.LogRecord("ibpulse.agent.sampler", logging.WARNING, "x.py", 1, "%s", (message,), None)
    record.created, record.msecs = 1_763_683_200.25, 250.0
    return record


def parse_logfmt(line: str) -> dict[str, str]:
    """The fields by a parser of its own, which must consume the whole line."""
    assert "".join(pair[0] for pair in PAIR.finditer(line)) == line
    return {key: json.loads(value) if value[0] == '"' else value for key, value in PAIR.findall(line)}


@pytest.mark.parametrize("message", MESSAGES)
def test_json_and_logfmt_carry_the_same_fields(message: str) -> None:
    record = make_record(message)
    fields = {
        "time": "2025-11-21T00:00:00.250Z",
        "level": "warning",
        "logger": "ibpulse.agent.sampler",
        "message": message,
    }
    assert json.loads(FORMATTERS["json"]().format(record)) == fields
    line = FORMATTERS["logfmt"]().format(record)
    assert "\n" not in line
    assert parse_logfmt(line) == fields


def test_an_exception_is_a_field() -> None:
    record = make_record("failed")
    try:
        raise OSError("disk full")
    except OSError:
        record.exc_info = sys.exc_info()
    for form, parse in (("json", json.loads), ("logfmt", parse_logfmt)):
        assert parse(FORMATTERS[form]().format(record))["exception"].endswith("OSError: disk full")


FORGED = "x\n2026-11-21T00:00:00.000Z ERROR   forged \x1b[31mred\x9b1m\u202e\u2028"


@pytest.mark.parametrize("form", FORMATTERS)
def test_no_message_writes_a_line_of_its_own_or_to_the_terminal(form: str) -> None:
    line = FORMATTERS[form]().format(make_record(FORGED))
    assert line.isprintable()


def test_a_message_is_escaped_and_a_stack_trace_indented() -> None:
    assert FORMATTERS["text"]().format(make_record(FORGED)) == (
        r"2025-11-21T00:00:00.250Z WARNING x\n2026-11-21T00:00:00.000Z ERROR   forged \u001b[31mred\u009b1m\u202e\u2028"
    )
    record = make_record("failed")
    try:
        raise OSError(FORGED)
    except OSError:
        record.exc_info = sys.exc_info()
    first, *rest = FORMATTERS["text"]().format(record).split("\n")
    assert first.endswith(" failed")
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
