"""Boards as Grafana documents: variables, links, and the positions of the panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from tools.grafana.links import Page, board_links, page_links
from tools.grafana.variables import Variable

FLEET, NODE, JOB, COMPARE, BURSTS, EXPORTER = (
    f"ibpulse-{name}" for name in ("fleet", "node", "job", "comparison", "bursts", "exporter")
)
GRID_WIDTH = 24
TAG = "ibpulse"


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading, placed from left to right; without a title they are at the top of the board."""

    title: str
    panels: Sequence[model.Panel]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """A board. `question` is the question that its first screen answers."""

    uid: str
    title: str
    question: str
    variables: Sequence[Variable]
    sections: Sequence[Section]
    start: str = "now-1h"
    refresh: str = "30s"
    marks: Sequence[build.AnnotationQuery] = ()
    pages: Sequence[Page] = ()

    @property
    def panels(self) -> list[model.Panel]:
        """All panels."""
        return [panel for section in self.sections for panel in section.panels]

    @property
    def short_title(self) -> str:
        """The title without the name of the program."""
        return self.title.removeprefix("ibpulse / ")

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.uid.removeprefix("ibpulse-") + ".json"


def write_board(board: Board, boards: Sequence[Board]) -> model.Dashboard:
    """The document of a board, with links to the other `boards`."""
    document = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.question)
        .tags([TAG])
        .timezone("browser")
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time(board.start, "now")
        .refresh(board.refresh)
        .variables(list(board.variables))
        .links([*board_links(board.uid, {each.uid: each.short_title for each in boards}), *page_links(board.pages)])
    )
    for mark in board.marks:
        document.annotation(mark)
    built = document.build()
    built.panels = _place(board.sections)
    return built


def _place(sections: Sequence[Section]) -> list[model.Panel | model.RowPanel]:
    placed: list[model.Panel | model.RowPanel] = []
    number, top = 0, 0
    for section in sections:
        if section.title:
            number += 1
            row = model.RowPanel(section.collapsed, section.title, grid_pos=_position(top, 0, GRID_WIDTH, 1))
            row.id_val = number
            placed.append(row)
            top += 1
        bottom = _flow(section.panels, top)
        for panel in section.panels:
            number += 1
            panel.id_val = number
        if section.title and section.collapsed:
            row.panels = list(section.panels)
        else:
            placed += section.panels
            top = bottom
    return placed


def _flow(panels: Sequence[model.Panel], top: int) -> int:
    """Place the panels in lines from `top` downwards; return the first free height below them."""
    left, height = 0, 0
    for panel in panels:
        assert panel.grid_pos is not None
        if left + panel.grid_pos.w > GRID_WIDTH:
            left, top, height = 0, top + height, 0
        panel.grid_pos = _position(top, left, panel.grid_pos.w, panel.grid_pos.h)
        left, height = left + panel.grid_pos.w, max(height, panel.grid_pos.h)
    return top + height


def _position(top: int, left: int, width: int, height: int) -> model.GridPos:
    return model.GridPos(h=height, w=width, x=left, y=top)
