"""Encodes a window as JSON, CSV, NPY or a Grafana data frame."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response

from ibpulse.agent.web.job_choice import describe_ports
from ibpulse.agent.web.window.query import Format
from ibpulse.base.text import csv_text, first_names
from ibpulse.base.units import MILLISECOND_NS
from ibpulse.core.answers.members import AnswerPart
from ibpulse.core.answers.window import NPY_HEADER, NPY_TYPE, History, Implausible, WindowAnswer, WindowGrid, WindowHead
from ibpulse.core.window_values import UNCERTAINTY, WindowValues

_NUMPY = orjson.OPT_SERIALIZE_NUMPY
CSV_TYPE = "text/csv; charset=utf-8"
NAMED_PORTS = 8


def write_window(window: WindowValues, wanted: Format) -> Response:
    """The response with a window in the requested format."""
    return {"json": _json, "csv": _csv, "npy": _npy, "grafana": _grafana}[wanted](window)


def _grid(window: WindowValues) -> WindowGrid:
    """The members that describe the values, including the number of missing ones; `job` only if the query names one.

    Models cost 12 µs more than dictionaries, 2 % of a window of 1 s with 8 ports.
    """
    plan, marks, holes = window.plan, window.marks, window.holes()
    step_ms = plan.bins.width * plan.interval_ns // MILLISECOND_NS
    edges_ns = plan.bins.first * plan.interval_ns, plan.bins.end * plan.interval_ns
    job: dict[str, Any] = {"job": describe_ports(plan.job, *edges_ns)} if plan.job else {}
    return WindowGrid.model_construct(
        interval_ms=plan.interval_ns // MILLISECOND_NS,
        resolution_ms=step_ms,
        statistic=plan.statistic,
        unit=plan.unit,
        start_ms=window.start_ms,
        end_ms=window.start_ms + plan.bins.points * step_ms,
        points=plan.bins.points,
        holes=holes,
        implausible=Implausible.model_construct(
            merged=marks.merged, unexplained=marks.unexplained, places=marks.places
        ),
        history=History.model_construct(oldest_ms=window.oldest_ms, newest_ms=window.newest_ms),
        coverage=_sentence(window, holes),
        **job,
    )


def _sentence(window: WindowValues, holes: int) -> str:
    plan = window.plan
    if plan.job and not plan.ports:
        return f"Job {plan.job.id} had none of the requested ports in this span, as far as is known."
    if not window.values.size:
        return "No bin of this span is complete yet." if plan.ports else "No ports are sampled."
    found = ["No values are missing."]
    if holes:
        found = [f"{holes} of {window.values.size} values are missing."]
        found += [f"The history begins at {window.oldest_ms} ms."] if window.start_ms < window.oldest_ms else []
    if plan.job and plan.partly:
        names = first_names(plan.partly, NAMED_PORTS)
        found.append(f"Job {plan.job.id} had {names} only for a part of the span; other samples are left out.")
    return " ".join(found)


def _json(window: WindowValues) -> Response:
    series: list[Any] = []
    for row, (port, direction) in enumerate(window.names()):
        # the members of `WindowSeries` with arrays, which orjson encodes without a Python object for each value
        series.append({"port": port, "direction": direction, "values": window.values[row]})
        if window.uncertainty is not None:
            series[-1][UNCERTAINTY] = window.uncertainty[row]
    answer = WindowAnswer.model_construct(**_grid(window).given(), series=series)
    return Response(answer.encode_given(), media_type="application/json")


def _grafana(window: WindowValues) -> Response:
    unit = "percentunit" if window.plan.unit == "ratio" else "Bps"
    fields: list[dict[str, Any]] = [{"name": "time", "type": "time"}]
    fields += [{"name": " ".join(name), "type": "number", "config": {"unit": unit}} for name in window.names()]
    for name in window.columns()[len(window.names()) :]:
        fields.append({"name": name, "type": "number", "config": {"unit": "percentunit"}})
    frame = {
        "schema": {"name": "ibpulse", "meta": {"type": "heatmap-rows", "custom": _grid(window)}, "fields": fields},
        "data": {"values": [window.times_ms(), *window.table()]},
    }
    return Response(orjson.dumps(frame, AnswerPart.given, _NUMPY), media_type="application/json")


def _csv(window: WindowValues) -> Response:
    head = io.StringIO()
    csv.writer(head, lineterminator="\n").writerow(["time_ms", *map(csv_text, window.columns(window.plan.unit))])
    # orjson encodes the times and the values as a whole, which is a sixth faster than row by row: the text [1,2]
    # is split at its commas, [[0.5,null],[1.5,2.5]] between its rows; an empty text replaces null
    times = orjson.dumps(window.times_ms(), option=_NUMPY)[1:-1].split(b",")
    table = orjson.dumps(np.ascontiguousarray(window.table().T), option=_NUMPY).replace(b"null", b"")
    rows = table[len(b"[[") : -len(b"]]")].split(b"],[")
    lines = [b"%b,%b\n" % pair for pair in zip(times, rows, strict=True)] if window.values.size else []
    return Response(head.getvalue().encode() + b"".join(lines), media_type=CSV_TYPE)


def _npy(window: WindowValues) -> Response:
    head = io.BytesIO()
    values = window.table().astype("<f4", copy=False)
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(values))
    about = WindowHead.model_construct(**_grid(window).given(), series=window.columns())
    # json, not orjson, because headers are ASCII only
    headers = {NPY_HEADER: json.dumps(about, default=AnswerPart.given, separators=(",", ":"))}
    return Response(b"".join((head.getvalue(), values.data)), media_type=NPY_TYPE, headers=headers)
