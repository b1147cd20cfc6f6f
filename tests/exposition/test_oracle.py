"""The text matches the client library's own output, and its parsers read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from ibpulse.agent.aggregator import Snapshot
from ibpulse.agent.metrics.page import render, rows_of
from ibpulse.core.metrics import web
from ibpulse.core.metrics.row import Histogram, read_families
from tests.aggregator.rings import port
from tests.exposition.snapshots import SERVER, node, snapshot_of

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
Parser = Callable[[str], Iterable[Metric]]

parametrize_format = pytest.mark.parametrize(
    ("accept", "parse"), [("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)]
)


FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class SnapshotCollector(Collector):
    """The families of a snapshot as those of the client library."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for row, samples in read_families(rows_of(self._snapshot), self._snapshot):
            if row.type == "info":
                info = InfoMetricFamily(row.family, row.help)
                for labels, _ in samples:
                    values = zip(row.labels, labels, strict=True)
                    # an empty label is none
                    info.add_metric(
                        [], {name: text for name, text in values if text or name not in ("name", "namespace")}
                    )
                yield info
                continue
            family = FAMILIES[row.type](row.name, row.help, labels=row.labels, unit=row.unit)
            for labels, value in samples:
                if isinstance(value, Histogram):
                    limits = [*(repr(float(bound)) for bound in value.bounds), "+Inf"]
                    family.add_metric(labels, list(zip(limits, value.cumulative, strict=True)), value.total)
                else:
                    family.add_metric(labels, value)
            yield family


def known(value: float) -> float | str:
    """The value in a comparable form, because NaN does not equal itself."""
    return "NaN" if math.isnan(value) else value


def samples_of(families: Iterable[Metric]) -> dict[tuple[str, str], list[tuple[object, ...]]]:
    return {
        (family.name, family.type): sorted(
            (sample.name, tuple(sorted(sample.labels.items())), known(sample.value)) for sample in family.samples
        )
        for family in families
        if family.samples
    }


def read_both(snapshot: Snapshot, accept: str, parse: Parser) -> tuple[list[Metric], list[Metric]]:
    """Our families and the oracle's, as the client library's parser reads their texts."""
    body, _ = render(snapshot, CollectorRegistry(), accept)
    oracle = CollectorRegistry()
    oracle.register(SnapshotCollector(snapshot))
    encode, _ = choose_encoder(accept)
    return list(parse(body.decode())), list(parse(encode(oracle).decode()))


@parametrize_format
def test_the_parser_reads_the_same_samples_as_from_the_client_library(
    tmp_path: Path, accept: str, parse: Parser
) -> None:
    ours, theirs = read_both(node(tmp_path), accept, parse)
    assert samples_of(ours) == samples_of(theirs)
    assert sum(len(family.samples) for family in ours) > 700


@parametrize_format
def test_help_and_unit_are_those_of_the_client_library(tmp_path: Path, accept: str, parse: Parser) -> None:
    ours, theirs = read_both(node(tmp_path, 2), accept, parse)
    told = {family.name: (family.documentation, family.unit) for family in theirs}
    assert {family.name: (family.documentation, family.unit) for family in ours}.items() <= told.items()


@parametrize_format
def test_labels_survive_any_content(tmp_path: Path, accept: str, parse: Parser) -> None:
    odd = 'quote " back \\ line \n end, comma } {'
    strange = port("mlx5_0:1", source=odd)
    ours, theirs = read_both(snapshot_of(tmp_path, strange), accept, parse)
    assert samples_of(ours) == samples_of(theirs)
    found = [sample for family in ours for sample in family.samples if sample.name == "ibpulse_port_info"]
    assert [sample.labels["source"] for sample in found] == [odd]


@parametrize_format
def test_the_parser_reads_the_families_of_the_server(tmp_path: Path, accept: str, parse: Parser) -> None:
    body, _ = render(node(tmp_path, 1), CollectorRegistry(), accept, [row.name for row in web.ROWS], SERVER)
    families = list(parse(body.decode()))
    assert [(family.name, family.type) for family in families] == [(row.family, row.type) for row in web.ROWS]
    (counted,) = (family.samples for family in families if family.name == "ibpulse_http_requests")
    counts = {(sample.labels["path"], sample.labels["code"]): sample.value for sample in counted}
    assert counts == {("/metrics", "200"): 2, ("/metrics", "405"): 1, ("other", "404"): 1}
    (spent,) = (family.samples for family in families if family.name == "ibpulse_http_request_duration_seconds")
    sums = {sample.labels["path"]: sample.value for sample in spent if sample.name.endswith("_sum")}
    assert sums == pytest.approx({"/metrics": 0.0015 + 0.0025 + 0.0001, "other": 0.25})
