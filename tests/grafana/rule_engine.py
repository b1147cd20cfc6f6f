"""Prometheus's own engine over made-up series: `promtool test rules`, asked which alerts fire at each evaluation.

promtool compares, and prints what it found where that differs. Asked to find nothing, it prints everything.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SCRAPE_SECONDS = 15
EVALUATION_SECONDS = 15
"""The default interval of alerts; promtool evaluates recordings as often."""
Labels = Mapping[str, str]
Value = float | None
"""A sample; None is none, as of a target that is not scraped."""

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_FIRING = 'ALERTS{alertstate="firing"}'
_CHECK = re.compile(r'^\s+expr: "ALERTS.*", time: (?P<time>\w+),')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Series:
    """One series: a sample for each scrape."""

    name: str
    labels: Labels
    values: Sequence[Value]

    def document(self) -> dict[str, str]:
        """The series in promtool's notation."""
        labels = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(self.labels.items()))
        return {"series": f"{self.name}{{{labels}}}", "values": " ".join(_runs(self.values))}


@dataclass
class Found:
    """At which seconds each alert fired, by its labels; and its labels with its annotations."""

    seconds: dict[frozenset[tuple[str, str]], list[int]] = field(default_factory=dict)
    annotations: list[tuple[dict[str, str], dict[str, str]]] = field(default_factory=list)


def evaluate(
    directory: Path, rules: Mapping[str, Any], series: Sequence[Series], last: int, texts_at: Sequence[int] = ()
) -> Found:
    """What fires when the rules are evaluated every `EVALUATION_SECONDS` over the series.

    Args:
        rules: the documents of rule files by name.
        last: the last second.
        texts_at: seconds at which the annotations of the alerts that fire are wanted.
    """
    for name, document in rules.items():
        (directory / name).write_text(yaml.safe_dump(document))
    nothing: list[Any] = []
    test = {
        "interval": f"{SCRAPE_SECONDS}s",
        "input_series": [one.document() for one in series],
        "promql_expr_test": [
            {"eval_time": f"{second}s", "expr": _FIRING, "exp_samples": nothing}
            for second in range(0, last + 1, EVALUATION_SECONDS)
        ],
        "alert_rule_test": [
            {"eval_time": f"{second}s", "alertname": name, "exp_alerts": nothing}
            for second in texts_at
            for name in sorted(_names(rules))
        ],
    }
    path = directory / "test.yaml"
    # the worst order: every rule reads what another group recorded at the evaluation before
    order = [group["name"] for document in reversed(rules.values()) for group in reversed(document["groups"])]
    head = {"rule_files": list(rules), "evaluation_interval": f"{EVALUATION_SECONDS}s", "group_eval_order": order}
    path.write_text(yaml.safe_dump({**head, "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(path)], check=False, capture_output=True, text=True)
    return _read(done.stdout + done.stderr)


def _names(rules: Mapping[str, Any]) -> set[str]:
    """The alerts of rule files."""
    groups = [group for document in rules.values() for group in document["groups"]]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}


def _read(output: str) -> Found:
    """What promtool printed; anything else than a difference, such as a rule that fails, is an error."""
    found = Found()
    second = 0
    labels: dict[str, str] = {}
    for line in output.splitlines():
        if check := _CHECK.match(line):
            second = _seconds(check["time"])
        elif "__name__" in line:
            for sample in re.findall(r"\{__name__[^}]*\}", line):
                key = frozenset(_LABEL.findall(sample)) - {("__name__", "ALERTS"), ("alertstate", "firing")}
                found.seconds.setdefault(key, []).append(second)
        elif "Labels:{" in line:
            labels = dict(_LABEL.findall(line))
        elif "Annotations:{" in line:
            found.annotations.append((labels, dict(_LABEL.findall(line))))
        else:
            assert re.fullmatch(
                r"|Unit Testing:.*|  (FAILED:|SUCCESS)|\s+(exp|got):.*|\s+alertname:.*|\s+\d+:|\s+\]", line
            ), output
    return found


def _seconds(text: str) -> int:
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([dhms])", text))


def _runs(values: Sequence[Value]) -> Iterator[str]:
    """The samples, with equal steps as one run; a series that ends is marked stale, as a scrape does."""
    place, count = 0, len(values)
    while place < count:
        first = values[place]
        end = place + 1
        if first is None:
            while end < count and values[end] is None:
                end += 1
            if place:
                yield "stale"
                place += 1
            if end > place:
                yield f"_x{end - place}" if end - place > 1 else "_"
        else:
            step = _step(values, place)
            while end < count and values[end] is not None and _step(values, end - 1) == step:
                end += 1
            run = end - place - 1
            yield f"{first:.12g}" if not run else f"{first:.12g}{step:+.12g}x{run}"
        place = end


def _step(values: Sequence[Value], place: int) -> float | None:
    if place + 1 >= len(values):
        return None
    here, there = values[place], values[place + 1]
    return None if here is None or there is None else round(there - here, 9)
