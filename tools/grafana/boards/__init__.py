"""The boards, one module each, as the files that Grafana loads.

To add a board, write a module here and add it to `BOARDS`.
"""

from __future__ import annotations

import json

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


def board_files() -> dict[str, str]:
    """The text of each board by file name."""
    boards = [make() for make in BOARDS]
    return {board.file: _write(board, boards) for board in boards}


def _write(board: Board, boards: list[Board]) -> str:
    document = json.loads(json.dumps(write_board(board, boards), cls=JSONEncoder))
    # the SDK puts every link into a menu and cannot show it directly
    for link in document["links"]:
        del link["placement"]
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
