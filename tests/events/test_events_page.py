"""docs/events.md has every kind, and the numbers of the program."""

from __future__ import annotations

import re
from pathlib import Path

from ibpulse.events import KINDS
from ibpulse.events.event import MAX_TEXT, to_json
from ibpulse.events.log import HEAD, MAX_PER_KIND, MAX_STARTED, NAME, VERSION
from tests.events.making import DOWN, UP, moved

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()


def test_the_table_of_kinds_is_that_of_the_program() -> None:
    section = PAGE.partition("## Kinds")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \| (a port|a device|the node) \|$", section, re.MULTILINE)
    assert [(kind, meaning) for kind, meaning, _ in rows] == list(KINDS.items())


def test_the_file_is_described_as_it_is_written() -> None:
    assert f"are in the file `{NAME}` in" in PAGE
    assert f"\n{HEAD.decode()}{VERSION}\n" in PAGE
    section = PAGE.partition("| member | content |")[2].partition("\n\n")[0]
    described = re.findall("`([a-z_]+)`", "".join(line.split("|")[1] for line in section.splitlines() if "|" in line))
    event = moved(5, "mlx5_0:1", UP, DOWN)
    members = to_json(event) | {"text": "", "uncertainty_ns": 1, "details": {}}
    assert set(described) == set(members)
    assert all(f"`{name}`" in section for name in members["before"])


def test_the_bounds_are_those_of_the_program() -> None:
    assert f"At most {MAX_PER_KIND:,} events of each kind are kept, and {MAX_STARTED} of `started`" in PAGE
    assert f"a sentence, at most {MAX_TEXT:,} characters" in PAGE
