"""The boards, one module each, as the files that Grafana loads, and the linter's list of exceptions.

To add a board, write a module here and add it to `BOARDS`.
"""

from __future__ import annotations

import json
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.grafana.boards import bursts_board, compare_board, exporter_board, fleet_board, job_board, node_board
from tools.grafana.layout import Board, write_board

BOARDS = (
    fleet_board.board,
    job_board.board,
    node_board.board,
    compare_board.board,
    bursts_board.board,
    exporter_board.board,
)
"""Functions that make the boards, in the order of the links between them."""
LINT_FILE = ".lint"
LINT_HEAD = "# Written by `python -m tools.grafana`: rules of grafana/dashboard-linter that are broken on purpose.\n"


def board_files() -> dict[str, str]:
    """The text of each board and of the linter's exceptions, by file name."""
    boards = [make() for make in BOARDS]
    texts = {board.file: _write(board, boards) for board in boards}
    return texts | {LINT_FILE: LINT_HEAD + yaml.safe_dump(_exclusions(boards), width=110)}


def _write(board: Board, boards: list[Board]) -> str:
    document = json.loads(json.dumps(write_board(board, boards), cls=JSONEncoder))
    # the SDK puts every link into a menu and cannot show it directly
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
