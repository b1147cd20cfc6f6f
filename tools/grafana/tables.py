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

from tools.grafana import colors
from tools.grafana.panels import EMPTY, PROMETHEUS, REF_IDS, Link, PanelHead, finish_panel, link_property

UNSEEN = ("job", "cluster")
"""Labels that only links need."""
HIDDEN = [
    # the first up to Grafana 12.1, the second later
    dashboard.DynamicConfigValue(id_val="custom.hidden", value=True),
    dashboard.DynamicConfigValue(id_val="custom.hideFrom", value={"legend": False, "tooltip": False, "viz": True}),
]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the values of an instant query under a heading; `levels` colour the cells from each value upwards.

    A query without a heading only contributes labels. `width` is in pixels; 0 leaves it to Grafana.
    """

    heading: str
    expr: str
    unit: str
    levels: tuple[tuple[float, str], ...] = ()
    width: int = 0


def table(
    face: PanelHead,
    columns: Sequence[Column],
    labels: Mapping[str, str],
    *,
    sort: Sequence[str] = (),
    ascending: bool = False,
    link: Link | None = None,
    linked: str = "",
    words: Mapping[str, list[dashboard.ValueMapping]] | None = None,
    widths: Mapping[str, int] | None = None,
    values_first: bool = False,
) -> dashboard.Panel:
    """A table whose rows are joined by the labels that all queries share.

    `labels` with their headings come first, in this order, unless `values_first`. The column `linked`, by default the
    first label, holds the `link`. `sort` names headings, `words` maps values in a column, `widths` are those of labels
    by heading.
    """
    panel = (
        table_builder.Panel()
        .targets(_targets(columns))
        .cell_height(common.TableCellHeight.SM)
        .with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            dashboard.DataTransformerConfig(id_val="organize", options=_organize(columns, labels, values_first))
        )
        .sort_by([build_common.TableSortByFieldState().display_name(name).desc(not ascending) for name in sort])
        .override_by_field_type("number", [dashboard.DynamicConfigValue(id_val="noValue", value=EMPTY)])
        .override_by_field_type("string", [dashboard.DynamicConfigValue(id_val="noValue", value=EMPTY)])
    )
    for column in (column for column in columns if column.heading):
        panel.override_by_name(column.heading, _properties(column))
    for heading, mappings in (words or {}).items():
        panel.override_by_name(heading, [dashboard.DynamicConfigValue(id_val="mappings", value=mappings)])
    for heading, width in (widths or {}).items():
        panel.override_by_name(heading, [_width(width)])
    for label in UNSEEN:
        if label not in labels:
            panel.override_by_name(label, HIDDEN)
    if link is not None:
        panel.override_by_name(linked or next(iter(labels.values())), [link_property(link)])
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


def _organize(columns: Sequence[Column], labels: Mapping[str, str], values_first: bool) -> dict[str, object]:
    # Grafana adds no letter to the column name if there is only one query
    values = ["Value"] if len(columns) == 1 else [f"Value #{ref_id}" for ref_id in REF_IDS[: len(columns)]]
    headings = {name: column.heading for name, column in zip(values, columns, strict=True)}
    order = [*values, *labels] if values_first else [*labels, *values]
    order += [label for label in UNSEEN if label not in labels]
    unnamed = {name: True for name, heading in headings.items() if not heading}
    return {
        # the node is in `instance`, whatever a scrape adds to it
        "excludeByName": {"Time": True, "node": True} | unnamed,
        "indexByName": {name: place for place, name in enumerate(order)},
        "renameByName": dict(labels) | {name: heading for name, heading in headings.items() if heading},
    }


def _properties(column: Column) -> list[dashboard.DynamicConfigValue]:
    properties = [dashboard.DynamicConfigValue(id_val="unit", value=column.unit)]
    if column.width:
        properties.append(_width(column.width))
    if column.levels:
        cell = {"type": "color-background", "mode": "basic"}
        levels = colors.steps(*column.levels, base="transparent").build()
        properties += [
            dashboard.DynamicConfigValue(id_val="thresholds", value=levels),
            dashboard.DynamicConfigValue(id_val="custom.cellOptions", value=cell),
        ]
    return properties


def _width(pixels: int) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(id_val="custom.width", value=pixels)
