"""Findings as a page and as a document."""

from __future__ import annotations

import json

import pytest

from ibpulse.agent.doctor import CHECKS, Finding, Level, document, page, worst_level
from ibpulse.agent.doctor.examination import WIDTH, merge, verdict

FINE = Finding(Level.OK, "mlx5_0:1", "is a rail.", topic="rails")
ODD = Finding(Level.WARN, "mlx5_1:1", "is idle.", "The job does not use it.", "Look at the job.", "balance")
BAD = Finding(Level.FAIL, "mlx5_2", "does not answer.", "It is not sampled.", "Reset the card.", "devices")


def test_a_page_has_a_line_each_and_the_verdict() -> None:
    assert page([FINE, ODD], "ibpulse looks at /sys") == (
        "ibpulse looks at /sys\n"
        "\n"
        "OK    rails       mlx5_0:1: is a rail.\n"
        "WARN  balance     mlx5_1:1: is idle.\n"
        "                  means  The job does not use it.\n"
        "                  do     Look at the job.\n"
        "\n"
        "verdict: WARN (1 warning)\n"
    )


def test_findings_that_say_the_same_stand_in_one_line() -> None:
    ports = [Finding(Level.OK, f"mlx5_{number}:1", "is a rail.", topic="rails") for number in (10, 2, 1)]
    assert page(ports).startswith("OK    rails       mlx5_1:1, mlx5_2:1, mlx5_10:1: each is a rail.\n")
    assert merge([*ports, BAD])[0][1] == ("mlx5_10:1", "mlx5_2:1", "mlx5_1:1")


def test_a_finding_without_a_subject_is_its_sentence() -> None:
    assert "OK    clock       It is synchronised.\n" in page(
        [Finding(Level.OK, "", "It is synchronised.", topic="clock")]
    )


def test_no_line_is_wider_than_the_page() -> None:
    text = page([Finding(Level.WARN, "mlx5_0:1", "is " + "very " * 60 + "long.", "so " * 90, "do " * 90, "rails")])
    assert max(map(len, text.splitlines())) <= WIDTH


def test_colours_are_there_when_asked_for() -> None:
    assert page([BAD], colour=True).startswith("\033[31mFAIL\033[0m  devices")
    assert "\033" not in page([BAD])


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], "verdict: OK: nothing to do"),
        ([FINE], "verdict: OK: nothing to do"),
        ([FINE, ODD], "verdict: WARN (1 warning)"),
        ([BAD, ODD, BAD], "verdict: FAIL (2 failures, 1 warning)"),
    ],
)
def test_the_verdict_is_the_worst_with_the_counts(findings: list[Finding], expected: str) -> None:
    assert verdict(findings) == expected


def test_the_worst_of_nothing_is_ok() -> None:
    assert worst_level([]) is Level.OK
    assert worst_level([ODD, BAD, FINE]) is Level.FAIL


def test_a_document_has_every_finding_and_can_be_written() -> None:
    told = json.loads(json.dumps(document([FINE, BAD], {"kernel": "6.8.0"})))
    assert (told["verdict"], told["kernel"], told["version"]) == ("FAIL", "6.8.0", 1)
    assert told["findings"][1] == {
        "level": "FAIL",
        "topic": "devices",
        "subject": "mlx5_2",
        "sentence": "does not answer.",
        "meaning": "It is not sampled.",
        "advice": "Reset the card.",
    }


def test_every_check_has_a_name_of_its_own_and_a_sentence() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.sentence.endswith(".") for check in CHECKS)


def test_names_from_the_tree_cannot_write_to_the_terminal_or_lines_of_their_own() -> None:
    hostile = "mlx5\n\x1b[2J\u202everdict: OK\x9b"
    found = page([Finding(Level.FAIL, hostile, hostile, hostile, hostile, "devices")], hostile, colour=True)
    assert all(line.isprintable() for line in found.replace("\033[31m", "").replace("\033[0m", "").split("\n"))
    assert found.count("\nverdict: ") == 1
