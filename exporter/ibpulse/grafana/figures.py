"""The line of large numbers at the top of a board. It must not know any metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.models import dashboard as model

from ibpulse.grafana import fields
from ibpulse.grafana.panels import Face, number
from ibpulse.grafana.queries import Query


@dataclass(frozen=True, slots=True)
class Figure:
    """One large number; `levels` colour it from each value upwards."""

    title: str
    description: str
    unit: str
    expr: str
    levels: tuple[tuple[float, str], ...] = ()


def figure_panels(figures: Sequence[Figure], nothing: str) -> list[model.Panel]:
    """A narrow panel for each number; eight fill a line."""
    return [
        number(
            Face(figure.title, figure.description, figure.unit, nothing, width=3, height=4),
            [Query(figure.expr, figure.title)],
            thresholds=fields.steps(*figure.levels),
        )
        for figure in figures
    ]
