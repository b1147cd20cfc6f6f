"""The walks of docs/architecture.md follow the imports, and the picture of the packages has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_facts import section

PAGE = ROOT / "docs" / "architecture.md"
WALKS = {
    "A byte counter becomes a line of /metrics": 10,
    "A request of /api/v1/window becomes bytes": 6,
    "A threshold becomes a rule of the chart": 5,
}
"""The most files of each walk."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A line of a walk: a numbered file, a return to an earlier one, or a boundary without a file."""

    kind: str
    path: str = ""


def stops(heading: str) -> list[Stop]:
    """The lines of a walk in order."""
    text = section(PAGE, heading)
    pattern = r"(?m)^(?:(\d+)\. `([\w/.]+)`|\s+\*(Back in) `([\w/.]+)`\.\*|\s+\*(Process|File) boundary: )"
    found = []
    for number, path, back, earlier, boundary in re.findall(pattern, text):
        kind = "file" if number else "back" if back else "boundary" if boundary else ""
        found.append(Stop(kind, path or earlier))
    return found


def imported_files(path: str) -> Iterator[str]:
    """The files that a module imports, also inside functions."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            root = "exporter" if name.startswith("ibpulse") else ""
            yield str(Path(root, *name.split(".")).with_suffix(".py"))


def are_connected(first: str, second: str) -> bool:
    """Whether one of two files imports the other, or includes it as templates of Helm do."""
    if first.endswith(".tpl"):
        (name,) = re.findall(r'define "(ibpulse\.rules)"', (ROOT / first).read_text())
        return f'include "{name}"' in (ROOT / second).read_text()
    return second in imported_files(first) or first in imported_files(second)


@pytest.mark.parametrize("heading", WALKS)
def test_a_walk_is_short_and_its_neighbours_are_connected(heading: str) -> None:
    files = [stop.path for stop in stops(heading) if stop.kind == "file"]
    assert len(files) == len(set(files))
    assert 3 < len(files) <= WALKS[heading]
    seen: list[str] = []
    previous = ""
    for stop in stops(heading):
        if stop.kind == "back":
            assert stop.path in seen
        if stop.kind == "file":
            assert (ROOT / stop.path).is_file(), stop.path
            assert not previous or are_connected(previous, stop.path), f"{previous} and {stop.path}"
            seen.append(stop.path)
        previous = stop.path


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r"`((?:exporter|tools|helm|dashboards)/[\w/.]+)`", PAGE.read_text())
    assert len(named) > 25
    assert [path for path in named if not (ROOT / path).exists()] == []
