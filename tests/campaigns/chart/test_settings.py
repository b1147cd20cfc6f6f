"""The settings that the chart hands to the program are ones that the program takes, and fit what the pods are given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ibpulse.agent.config.settings import GROUPS, ROWS
from ibpulse.base.units import parse_duration
from ibpulse.core.ring import layout
from tests.campaigns.chart.rendering import CASES, case_values, container, needs_helm, refusal, render, settings
from tools.chart.chart_values import settings_schema, value_schema

pytestmark = needs_helm


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_program_takes_the_settings_of_each_case(case: Path, tmp_path: Path) -> None:
    values = case_values(case)
    found = settings(render(values))
    # the file of the web configuration is in a Secret that no test has
    found["web"].pop("config.file", None)
    (tmp_path / "ibpulse.yaml").write_text(yaml.safe_dump(found))
    flags = [flag for flag in container(render(values))["args"] if flag.startswith("--") and "config.file" not in flag]
    done = subprocess.run(
        [sys.executable, "-m", "ibpulse", "config", "check", f"--config.file={tmp_path / 'ibpulse.yaml'}", *flags],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"IBPULSE_CAPTURE__NODE": "gpu-node-7"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_decides_where_the_mounts_are_and_leaves_the_rest_as_given() -> None:
    given = {"sampler": {"interval": "20ms", "cpu": 2}, "ports": {"expected-rails": 8}}
    found = settings(render({"config": given, "port": 9000, "fifo": {"enabled": True}}))
    assert found == {
        "path": {"sysfs": "/host/sys"},
        "ring": {"dir": "/run/ibpulse"},
        "capture": {"dir": "/var/lib/ibpulse/captures"},
        "sampler": {"interval": "20ms", "cpu": 2, "scheduler": "fifo"},
        "ports": {"expected-rails": 8},
        "web": {"listen-address": ":9000"},
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in container(render())["volumeMounts"]}
    assert mounts == {
        "sysfs": found["path"]["sysfs"],
        "ring": found["ring"]["dir"],
        "captures": found["capture"]["dir"],
        "config": "/etc/ibpulse/config",
    }


@pytest.mark.parametrize(
    ("ports", "interval", "history", "signals"),
    [(16, "10ms", "5m", "100ms"), (8, "1ms", "90s", "0s"), (64, "20ms", "1h", "1s"), (1, "1s", "2m30s", "10ms")],
)
def test_the_ring_that_the_chart_expects_is_the_ring_that_the_program_writes(
    ports: int, interval: str, history: str, signals: str
) -> None:
    ticks = (parse_duration(history) + 2_000_000_000) // parse_duration(interval)
    every = max(1, parse_duration(signals) // parse_duration(interval)) if signals != "0s" else ticks + 1
    ring_bytes = layout.file_bytes(0) + ports * layout.port_bytes(ticks, ticks // every)

    def values(size: int) -> dict[str, Any]:
        sampler = {"interval": interval, "history": history, "signals": signals}
        return {"config": {"sampler": sampler}, "ring": {"ports": ports, "sizeLimit": str(size)}}

    assert settings(render(values(ring_bytes)))
    said = refusal(values(ring_bytes - 1))
    assert f"cannot hold the samples of {ports} ports, which are {ring_bytes / 1e6:.0f} MB" in said


def test_the_schema_takes_every_default_of_the_table_and_knows_every_setting() -> None:
    for row in ROWS:
        if row.default:
            default = {"true": True, "false": False}.get(row.default, row.default)
            jsonschema.validate(default, value_schema(row))
    groups = settings_schema()["properties"]
    assert list(groups) == list(GROUPS)
    assert [f"{group}.{name}" for group, schema in groups.items() for name in schema["properties"]] == [
        row.name for row in ROWS
    ]
