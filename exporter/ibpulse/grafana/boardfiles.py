"""The boards as the files that Grafana and the linter load. It must not decide what is in them."""

from __future__ import annotations

import json
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from ibpulse.grafana.boards import bursts, comparison, exporter, fleet, node
from ibpulse.grafana.layout import Board, write_board

BOARDS = {
    "fleet.json": fleet.board,
    "node.json": node.board,
    "comparison.json": comparison.board,
    "bursts.json": bursts.board,
    "exporter.json": exporter.board,
}
LINT_FILE = ".lint"
LINT_HEAD = "# Written by `python -m ibpulse.grafana`: rules of grafana/dashboard-linter that are broken on purpose.\n"


def board_files() -> dict[str, str]:
    """The text of each board, and of the linter's exceptions, by file name."""
    boards = {name: make() for name, make in BOARDS.items()}
    texts = {name: _write(board) for name, board in boards.items()}
    return texts | {LINT_FILE: LINT_HEAD + yaml.safe_dump(_exclusions(list(boards.values())), width=110)}


def _write(board: Board) -> str:
    document = json.loads(json.dumps(write_board(board), cls=JSONEncoder))
    # the SDK hides every link in a menu and offers no way to show it
    for link in document["links"]:
        del link["placement"]
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _exclusions(boards: list[Board]) -> dict[str, Any]:
    exclusions: dict[str, dict[str, list[dict[str, str]]]] = {}
    for board in boards:
        for breach in board.exceptions:
            entry = {"dashboard": board.title, "reason": breach.reason}
            entry |= {"panel": breach.panel} if breach.panel else {}
            exclusions.setdefault(breach.rule, {"entries": []})["entries"].append(entry)
    return {"exclusions": exclusions}
