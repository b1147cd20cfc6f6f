"""The committed boards as the tests read them: panels, targets, and expressions with their variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql

FOLDER = Path(__file__).parents[2] / "dashboards"
BOARDS: dict[str, dict[str, Any]] = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PROMETHEUS = "prometheus"


@dataclass(frozen=True)
class Target:
    """One query of a panel."""

    board: str
    panel: dict[str, Any]
    body: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.board.removesuffix('.json')}: {self.panel['title']}: {self.body['refId']}"

    @property
    def expr(self) -> str:
        return str(self.body["expr"])


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel but the rows, those of collapsed rows too."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def targets(kind: str = PROMETHEUS) -> list[Target]:
    """The queries of all boards that ask this kind of data source."""
    return [
        Target(name, panel, body)
        for name, board in BOARDS.items()
        for panel in panels(board)
        for body in panel["targets"]
        if body["datasource"]["type"] == kind
    ]


def variables(board: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """The variables of a type, such as `query`."""
    return [variable for variable in board["templating"]["list"] if variable["type"] == kind]


def fill(expr: str, values: Mapping[str, str]) -> str:
    """The expression with its variables filled in; fails at one that has no value."""
    return re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda match: values[match[1] or match[2]], expr)


PLACEHOLDERS = {
    "__rate_interval": "130d12h46m4s",
    "__range": "130d12h46m5s",
    "shift": "1h",
}


def parse(expr: str) -> Any:
    """The syntax tree, with spans in place of the variables outside of quotes."""
    pattern = r'"[^"]*"|\$(\w+)'
    return promql.parse(re.sub(pattern, lambda match: PLACEHOLDERS[match[1]] if match[1] else match[0], expr))


def walk(node: Any, parents: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every node with the nodes above it, the nearest last."""
    yield node, parents
    for name in ("expr", "lhs", "rhs", "param", "vector_selector", "vs"):
        child = getattr(node, name, None)
        if isinstance(child, promql.Expr) or hasattr(child, "matchers"):
            yield from walk(child, (*parents, node))
    for child in getattr(node, "args", None) or ():
        yield from walk(child, (*parents, node))


def asked_for(selector: Any) -> set[str]:
    """The names of the series that a selector asks for; more than one if it is a pattern."""
    if selector.name:
        return {selector.name}
    return {
        name
        for matcher in selector.matchers.matchers
        if matcher.name == "__name__"
        for name in matcher.value.split("|")
    }


def selectors(expr: str) -> list[Any]:
    """The vector selectors of an expression, those with a range too."""
    return [node for node, _ in walk(parse(expr)) if isinstance(node, promql.VectorSelector)]
