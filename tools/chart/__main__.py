"""The generated parts of the Helm chart, from the tables and the rules.

`python -m tools.chart .` writes all of them in a checkout; `make check` fails when the committed ones differ. A release
also sets its image and its addresses, `python -m tools.chart . NAME@sha256:... https://HOST/OWNER/NAME TAG`: the chart
then installs exactly that image, names its home, and links in notifications lead to the pages of that release.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ibpulse import __version__
from ibpulse.base.errors import ConfigError
from tools.chart.chart_values import read_values, settings_schema
from tools.chart.rules_template import rules_schemas, rules_template, rules_values
from tools.grafana.inhibitions import INHIBITIONS, resource_rule_of
from tools.grafana.rule_files import write_yaml

CHART = Path("helm/ibpulse")
BOARDS = Path("dashboards")
RULE_VALUES = ("  # The rest of this map is written by `make chart`.\n", "  # Up to here.\n")
IMAGE = re.compile(r"(?P<registry>[^/@\s]+)/(?P<repository>[^@:\s]+)(@(?P<digest>sha256:[0-9a-f]{64}))?")
MAX_COLUMNS = 119
INHIBITIONS_HEAD = "{{/* Written by `make chart` from tools/grafana/inhibitions.py. */}}\n\n"


def chart_files(root: Path) -> dict[Path, str]:
    """The text of every file of the chart that is generated, wholly or in part, by its path under `root`.

    Args:
        root: a checkout; the hand-written parts are read from it.

    Raises:
        ConfigError: a mark around a generated part is missing, or a value has no comment.
    """
    values = _between((root / CHART / "values.yaml").read_text(), RULE_VALUES, _indent(rules_values(), 2))
    documented = read_values(values)
    boards = {CHART / "files" / path.relative_to(root): path.read_text() for path in (root / BOARDS).glob("*.json")}
    return {
        CHART / "Chart.yaml": _with_version((root / CHART / "Chart.yaml").read_text()),
        CHART / "LICENSE": (root / "LICENSE").read_text(),
        CHART / "values.yaml": values,
        CHART / "values.schema.json": _schema((root / CHART / "values.schema.json").read_text(), documented),
        CHART / "templates" / "_rules.tpl": rules_template(),
        CHART / "templates" / "_inhibitions.tpl": inhibitions_template(),
        **boards,
    }


def inhibitions_template() -> str:
    """The inhibitions as a template for the spec of an AlertmanagerConfig."""
    rules = write_yaml({"inhibitRules": [resource_rule_of(row) for row in INHIBITIONS]})
    return f'{INHIBITIONS_HEAD}{{{{- define "ibpulse.inhibitions" -}}}}\n{rules}{{{{- end }}}}\n'


def stale_boards(root: Path) -> list[Path]:
    """Boards in the chart that `dashboards/` no longer has."""
    boards = {path.name for path in (root / BOARDS).glob("*.json")}
    return sorted(path for path in (root / CHART / "files" / BOARDS).glob("*.json") if path.name not in boards)


def write(root: Path) -> None:
    """Bring every generated file of the chart up to date."""
    for path, text in chart_files(root).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path in stale_boards(root):
        path.unlink()


def pin_image(root: Path, image: str) -> None:
    """Set the image in the chart's values; with its digest, the chart installs what was built and signed with it.

    Args:
        root: a checkout; only its `values.yaml` is changed.
        image: `REGISTRY/REPOSITORY`, and `@sha256:DIGEST` if it has one.

    Raises:
        ConfigError: the image has another form, or a value is not in its place.
    """
    parts = IMAGE.fullmatch(image)
    if parts is None:
        raise ConfigError(
            [f'"{image}" is not an image; write REGISTRY/REPOSITORY, or REGISTRY/REPOSITORY@sha256:DIGEST']
        )
    _set(root, "image", {key: value for key, value in parts.groupdict().items() if value})


def point_at(root: Path, repository: str, tag: str) -> None:
    """Set the addresses of the project in the chart, and that of its runbooks in the values, after `write`.

    Raises:
        ConfigError: the address is not absolute, or the value is not in its place.
    """
    if not re.fullmatch(r"https?://\S+", repository):
        raise ConfigError([f'"{repository}" is not an absolute address; write https://HOST/OWNER/NAME'])
    _set(root, "prometheusRule", {"runbooks": f"{repository}/blob/{tag}/docs/runbooks"})
    path = root / CHART / "Chart.yaml"
    icon = f"{repository}/raw/{tag}/exporter/ibpulse/core/http/static/icon.svg"
    addresses = f"home: {repository}\nsources:\n  - {repository}\nicon: {icon}\nmaintainers:\n"
    text = path.read_text().replace("maintainers:\n", addresses, 1)
    path.write_text(re.sub(r"(?m)^(  - name: ibpulse contributors)$", rf"\1\n    url: {repository}", text))


def _set(root: Path, of: str, values: Mapping[str, str]) -> None:
    """Set values two columns deep in the chart's values."""
    path = root / CHART / "values.yaml"
    text = path.read_text()
    for key, value in values.items():
        text, places = re.subn(rf"(?m)^  {key}: .*$", f"  {key}: {value}", text)
        if places != 1:
            raise ConfigError([f"values.yaml: {of}.{key}: must appear exactly once, found {places}"])
    path.write_text(text)


def _between(text: str, marks: tuple[str, str], inner: str) -> str:
    """The text with the part between two marks replaced."""
    head, begin, rest = text.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise ConfigError(
            [f'the chart has no part between "{marks[0].strip()}" and "{marks[1].strip()}"; restore these lines']
        )
    return head + begin + inner + end + tail


def _indent(text: str, columns: int) -> str:
    return "".join(f"{' ' * columns}{line}\n" for line in text.splitlines())


def _with_version(text: str) -> str:
    """The chart's own file with the version of the program that it installs: both are released together."""
    text = re.sub(r"(?m)^version: .*$", f"version: {__version__}", text)
    return re.sub(r"(?m)^appVersion: .*$", f'appVersion: "{__version__}"', text)


def _schema(text: str, values: Mapping[tuple[str, ...], str]) -> str:
    """The schema with the generated definitions, and with the comments of values.yaml as descriptions."""
    schema: dict[str, Any] = json.loads(text)
    schema["definitions"] |= {"settings": settings_schema(), **rules_schemas()}
    for path, description in values.items():
        _place(schema, path)["description"] = description
    return _compact(schema) + "\n"


def _compact(value: Any, column: int = 0, key: int = 0) -> str:
    """JSON with an object or list on one line where it fits, at a column and behind a key of some length."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or len(line) + column + key <= MAX_COLUMNS:
        return line
    pad = " " * (column + 2)
    rows = [f"{pad}{json.dumps(name)}: {_compact(each, column + 2, len(name) + 4)}" for name, each in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{' ' * column}}}"


def _place(schema: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """The schema of one value; references to definitions are followed."""
    place = schema
    for key in path:
        while "$ref" in place:
            place = schema["definitions"][place["$ref"].rpartition("/")[2]]
        if key not in place.get("properties", {}):
            raise ConfigError([f"values.schema.json: {'.'.join(path)} is missing; add it"])
        place = place["properties"][key]
    return place


def main(words: Sequence[str]) -> int:
    """Write into the checkout (first argument), with image, repository and tag (optional); return the exit code."""
    root, *pins = words
    try:
        if pins:
            pin_image(Path(root), pins[0])
        write(Path(root))
        if pins[1:]:
            point_at(Path(root), *pins[1:])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
