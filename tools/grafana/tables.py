"""Tables: one row per node or port, columns from several queries, links to the board of the row's node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.builders import table as table_builder
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from tools.grafana import panels
from tools.grafana.panels import PROMETHEUS, REF_IDS, Link, PanelHead, finish_panel, link_property


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the values of an instant query under a heading; `levels` colour the cells from each value upwards.

    A query without a heading only contributes labels.
    """

    heading: str
    expr: str
    unit: str
    levels: tuple[tuple[float, str], ...] = ()


def table(
    face: PanelHead,
    columns: Sequence[Column],
    labels: Mapping[str, str],
    *,
    sort: Sequence[str] = (),
    ascending: bool = False,
    link: Link | None = None,
    words: Mapping[str, list[dashboard.ValueMapping]] | None = None,
) -> dashboard.Panel:
    """A table whose rows are joined by the labels that all queries share.

    `labels` with their headings come first, in this order; the first one holds the `link`. `sort` names headings,
    `words` maps values in a column.
    """
    panel = (
        table_builder.Panel()
        .title(face.title)
        .description(face.description)
        .datasource(PROMETHEUS)
        .targets(_targets(columns))
        .unit(face.unit)
        .no_value(face.nothing)
        .cell_height(common.TableCellHeight.SM)
        .filterable(True)
        .with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=_organize(columns, labels)))
        .sort_by([build_common.TableSortByFieldState().display_name(name).desc(not ascending) for name in sort])
    )
    for column in (column for column in columns if column.heading):
        panel.override_by_name(column.heading, _properties(column))
    for heading, mappings in (words or {}).items():
        panel.override_by_name(heading, [dashboard.DynamicConfigValue(id_val="mappings", value=mappings)])
    if link is not None:
        panel.override_by_name(next(iter(labels.values())), [link_property(link)])
    return finish_panel(panel, face)


def _targets(columns: Sequence[Column]) -> list[Builder[Dataquery]]:
    return [
        prometheus.Dataquery()
        .expr(column.expr)
        .ref_id(ref_id)
        .format(PromQueryFormat.TABLE)
        .datasource(PROMETHEUS)
        .instant()
        for ref_id, column in zip(REF_IDS, columns, strict=False)
    ]


def _organize(columns: Sequence[Column], labels: Mapping[str, str]) -> dict[str, object]:
    # Grafana adds no letter to the column name if there is only one query
    values = ["Value"] if len(columns) == 1 else [f"Value #{ref_id}" for ref_id in REF_IDS[: len(columns)]]
    headings = {name: column.heading for name, column in zip(values, columns, strict=True)}
    return {
        "excludeByName": {"Time": True} | {name: True for name, heading in headings.items() if not heading},
        "indexByName": {name: place for place, name in enumerate([*labels, *values])},
        "renameByName": dict(labels) | {name: heading for name, heading in headings.items() if heading},
    }


def _properties(column: Column) -> list[dashboard.DynamicConfigValue]:
    properties = [dashboard.DynamicConfigValue(id_val="unit", value=column.unit)]
    if column.levels:
        cell = {"type": "color-background", "mode": "basic"}
        levels = panels.steps(*column.levels, base="transparent").build()
        properties += [
            dashboard.DynamicConfigValue(id_val="thresholds", value=levels),
            dashboard.DynamicConfigValue(id_val="custom.cellOptions", value=cell),
        ]
    return properties
