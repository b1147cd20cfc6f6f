"""Every switch of the chart turned alone, found in the schema: each boolean, each choice of a word. No assertions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.campaigns.chart.rendering import CHART, Document, at_path, merged

NEEDS: dict[tuple[str, ...], Document] = {
    ("captures", "volume", "existingClaim"): {"captures": {"existingClaim": "claim"}},
    ("dashboards", "grafanaDashboard", "enabled"): {"dashboards": {"enabled": True}},
    ("prometheusRule",): {"prometheusRule": {"enabled": True}},
    ("podMonitor",): {"podMonitor": {"enabled": True}},
    ("serviceMonitor",): {"serviceMonitor": {"enabled": True}},
    ("webConfig",): {"webConfig": {"existingSecret": "web"}},
    ("gateway",): {"gateway": {"enabled": True}},
    ("gateway", "serviceMonitor"): {"gateway": {"serviceMonitor": {"enabled": True}}},
    ("gateway", "webConfig"): {"gateway": {"webConfig": {"existingSecret": "web"}}},
    ("gateway", "webConfig", "restartOnChange"): {
        "gateway": {"webConfig": {"existingSecret": "", "content": {"http_server_config": {"headers": {}}}}}
    },
    ("webConfig", "restartOnChange"): {
        "webConfig": {"existingSecret": "", "content": {"http_server_config": {"headers": {}}}}
    },
    ("updateStrategy", "type", "OnDelete"): {"updateStrategy": {"rollingUpdate": None}},
}
"""What a switch needs to have an effect, by the beginning of its path, the choice itself included."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One switch turned: its path, what it is set to, and the values under which that has an effect."""

    path: tuple[str, ...]
    choice: object

    @property
    def name(self) -> str:
        """The switch as `--set` has it."""
        return f"{'.'.join(self.path)}={json.dumps(self.choice)}"

    @property
    def before(self) -> Document:
        """Values that the switch needs, without it."""
        values: Document = {}
        whole = (*self.path, str(self.choice))
        for beginning, needed in NEEDS.items():
            if whole[: len(beginning)] == beginning and self.path != (*beginning, "enabled"):
                values = merged(values, needed)
        return values

    @property
    def after(self) -> Document:
        """The same with the switch turned."""
        return merged(self.before, at_path(self.path, self.choice))


def turns() -> list[Turn]:
    """Every switch turned to what the chart's own values do not have."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    return [Turn(path, choice) for path, choice in _choices(schema, schema, (), defaults)]


def _choices(
    schema: Document, place: Document, path: tuple[str, ...], defaults: Any
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Path and choice, wherever the chart's own value is another one."""
    while "$ref" in place:
        place = schema["definitions"][place["$ref"].rpartition("/")[2]]
    # the program's own settings, and what only says how bad an alert is, are no switches of the chart
    if path[:1] == ("config",) or path[-1:] == ("severity",):
        return
    if "boolean" in place.get("type", ()):
        yield from ((path, choice) for choice in (True, False) if choice is not defaults)
    for choice in place.get("enum", ()):
        if choice != defaults:
            yield path, choice
    for key, inner in place.get("properties", {}).items():
        if isinstance(defaults, dict) and key in defaults:
            yield from _choices(schema, inner, (*path, key), defaults[key])
