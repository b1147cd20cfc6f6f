"""Writes dashboards and rules: `python -m tools.grafana`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from ibpulse.errors import ConfigError
from tools.grafana import alerts, recording_rules
from tools.grafana.alerts import Alert
from tools.grafana.boards import bursts_board, comparison_board, exporter_board, fleet_board, node_board
from tools.grafana.layout import Board, write_board
from tools.grafana.recording_rules import Recording
from tools.grafana.thresholds import fill, resolve

HEAD = "# Written by `python -m tools.grafana`: change the program, not this file.\n"
RECORDING_FILE = "ibpulse-recording.yaml"
ALERT_FILE = "ibpulse-alerts.yaml"


def recording_document(values: Mapping[str, str]) -> dict[str, Any]:
    """The file of recording rules as plain values."""
    groups = recording_rules.GROUPS.items()
    return {"groups": [{"name": name, "rules": [_record(rule, values) for rule in rules]} for name, rules in groups]}


def alert_document(values: Mapping[str, str]) -> dict[str, Any]:
    """The file of alerts as plain values."""
    groups = alerts.GROUPS.items()
    return {"groups": [{"name": name, "rules": [_alert(rule, values) for rule in rules]} for name, rules in groups]}


def rule_files(values: Mapping[str, str]) -> dict[str, str]:
    """The text of each rule file by its name."""
    return {
        RECORDING_FILE: HEAD + write_yaml(recording_document(values)),
        ALERT_FILE: HEAD + write_yaml(alert_document(values)),
    }


def write_yaml(document: Any, width: int = 110) -> str:
    """A document as YAML with expressions of several lines as blocks."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=width, allow_unicode=True)


def _record(rule: Recording, values: Mapping[str, str]) -> dict[str, Any]:
    return {"record": rule.record, "expr": fill(rule.expr, values)}


def _alert(rule: Alert, values: Mapping[str, str]) -> dict[str, Any]:
    node = "?var-job={{ $labels.job }}&var-instance={{ $labels.instance }}"
    return {
        "alert": rule.name,
        "expr": fill(rule.expr, values),
        "for": values[rule.hold],
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": rule.summary,
            "description": fill(rule.description, values),
            "runbook_url": f"{values['runbooks'].rstrip('/')}/{rule.name}.md",
            "dashboard_url": f"{values['grafana'].rstrip('/')}/d/{rule.board}{node}",
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)


BOARDS = {
    "fleet.json": fleet_board.board,
    "node.json": node_board.board,
    "comparison.json": comparison_board.board,
    "bursts.json": bursts_board.board,
    "exporter.json": exporter_board.board,
}
LINT_FILE = ".lint"
LINT_HEAD = "# Written by `python -m tools.grafana`: rules of grafana/dashboard-linter that are broken on purpose.\n"


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


def main(arguments: list[str] | None = None) -> int:
    """Write what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.grafana", description="Write dashboards and rules.")
    parser.add_argument("what", choices=("rules", "dashboards"))
    parser.add_argument("directory", type=Path, help="where to write, such as dashboards/rules")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="another number for the rules")
    given = parser.parse_args(arguments)
    try:
        files = _files(given.what, dict(_split(text) for text in given.set))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    given.directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (given.directory / name).write_text(text)
    return 0


def _files(what: str, overrides: dict[str, str]) -> dict[str, str]:
    if what == "rules":
        return rule_files(resolve(overrides))
    # needs the SDK, a development dependency

    return board_files()


def _split(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise ConfigError([f"--set {text}: no value is given; write NAME=VALUE, like moe_for=1m"])
    return name, value


if __name__ == "__main__":
    sys.exit(main())
